"""Chakra's protobuf messages as classes, made here from the numbers of their fields.

Only this file imports protobuf. Strings are declared as bytes, which a damaged file can hold too,
and values as optional, so that one that is zero is told from one that is not there.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_PACKAGE = "et_replay.chakra"
_FIELD = descriptor_pb2.FieldDescriptorProto
_BYTES, _UINT64, _INT32 = _FIELD.TYPE_BYTES, _FIELD.TYPE_UINT64, _FIELD.TYPE_INT32

# an attribute's value is one of these from field 3 on; each is followed by a message for many
_VALUE_TYPES = (
    _FIELD.TYPE_DOUBLE,
    _FIELD.TYPE_FLOAT,
    _FIELD.TYPE_INT32,
    _FIELD.TYPE_INT64,
    _FIELD.TYPE_UINT32,
    _FIELD.TYPE_UINT64,
    _FIELD.TYPE_SINT32,
    _FIELD.TYPE_SINT64,
    _FIELD.TYPE_FIXED32,
    _FIELD.TYPE_FIXED64,
    _FIELD.TYPE_SFIXED32,
    _FIELD.TYPE_SFIXED64,
    _FIELD.TYPE_BOOL,
    _BYTES,  # text
    _BYTES,
)
_FIRST_VALUE = 3


class Messages:
    """Parses messages of a file; None is the answer for bytes that are none."""

    def __init__(self) -> None:
        pool = descriptor_pool.DescriptorPool()  # Chakra's own package has the same names in its
        pool.Add(_file())
        names = (f"{_PACKAGE}.Metadata", f"{_PACKAGE}.Node")
        self._metadata, self._node = (
            message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names
        )

    def parse_metadata(self, content: bytes) -> Any:
        """Parse what a file begins with: `version` and `attr`."""
        return _parsed(self._metadata, content)

    def parse_node(self, content: bytes) -> Any:
        """Parse a node; its fields have Chakra's names."""
        return _parsed(self._node, content)

    def values(self, attributes: Any) -> dict[str, Any]:
        """Return the values of parsed attributes by name; None where one has no value."""
        return {_plain(each.name): _value(each) for each in attributes}


def _value(attribute: Any) -> Any:
    for field, content in attribute.ListFields():
        if field.number >= _FIRST_VALUE:
            many = (field.number - _FIRST_VALUE) % 2
            return [_plain(each) for each in content.values] if many else _plain(content)
    return None


def _plain(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _parsed(kind: Any, content: bytes) -> Any:
    try:
        return kind.FromString(content)
    except DecodeError:
        return None


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="chakra", package=_PACKAGE, syntax="proto2")
    attribute = file.message_type.add(name="Attribute")
    _add(attribute, "name", 1, _BYTES)
    for place, kind in enumerate(_VALUE_TYPES):
        number = _FIRST_VALUE + 2 * place
        many = file.message_type.add(name=f"List{number + 1}")
        _add(many, "values", 1, kind, repeated=True)
        _add(attribute, f"value{number}", number, kind)
        _add(attribute, f"value{number + 1}", number + 1, many.name)
    metadata = file.message_type.add(name="Metadata")
    _add(metadata, "version", 1, _BYTES)
    _add(metadata, "attr", 2, attribute.name, repeated=True)
    columns = file.message_type.add(name="Columns")
    for number, name in enumerate(("values", "shapes", "types"), start=1):
        _add(columns, name, number, _BYTES)
    node = file.message_type.add(name="Node")
    _add(node, "id", 1, _UINT64)
    _add(node, "name", 2, _BYTES)
    _add(node, "type", 3, _INT32)
    _add(node, "ctrl_deps", 4, _UINT64, repeated=True)
    _add(node, "data_deps", 5, _UINT64, repeated=True)
    _add(node, "start_time_micros", 6, _UINT64)
    _add(node, "duration_micros", 7, _UINT64)
    _add(node, "inputs", 8, columns.name)
    _add(node, "outputs", 9, columns.name)
    _add(node, "attr", 10, attribute.name, repeated=True)
    return file


def _add(message: Any, name: str, number: int, kind: int | str, repeated: bool = False) -> None:
    """Declare a field: of a scalar type, or of the message with the name `kind`."""
    label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if isinstance(kind, str):
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    else:
        field.type = kind
