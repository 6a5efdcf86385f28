"""A pickle of plain data in (numbers, texts, lists, dicts), the data out; code never runs.

Python's own unpickler is used where it can do no harm. The one here knows only the opcodes that
data needs, what it builds is never larger than a fixed multiple of the file, and it can say what is
wrong; but it takes ten times as long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from et_replay.errors import TraceError
from et_replay.formats.harmless_pickle import load_if_harmless

_PROTO, _STOP, _GLOBAL, _INST, _STACK_GLOBAL = 0x80, ord("."), ord("c"), ord("i"), 0x93
_NEWEST_PROTOCOL = 5
_KEYS = frozenset({str, int, float, bool, type(None)})
_DAMAGE = (IndexError, KeyError, TypeError, ValueError, struct.error)
_FLOAT = struct.Struct(">d")


def is_pickle(head: bytes) -> bool:
    """Tell whether a file that begins so is a pickle of protocol 2 or later."""
    return len(head) >= 2 and head[0] == _PROTO and 2 <= head[1] <= _NEWEST_PROTOCOL


def load_plain(data: bytes, name: str) -> Any:
    """Return the object that a pickle describes.

    Raises TraceError where the pickle asks for a class or a function, breaks off or is damaged.
    """
    harmless, content = load_if_harmless(data)
    return content if harmless else load_carefully(data, name)


def load_carefully(data: bytes, name: str) -> Any:
    """Do what `load_plain` does, without Python's own unpickler."""
    machine, handlers, position = _Machine(data, name), _HANDLERS, 0
    try:
        while (opcode := data[position]) != _STOP:
            position = handlers[opcode](machine, position + 1)
        return machine.stack[-1]
    except _DAMAGE as error:
        if position >= len(data):
            raise TraceError(f"{name} is a pickle that breaks off.") from error
        raise TraceError(f"{name} is a pickle that is damaged near byte {position}.") from error


class _Machine:
    """A stack of values, cut at marks, and the memo."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self._name = name
        self._below: list[list[Any]] = []

    def mark(self) -> None:
        """Cut the stack: what comes now lies above the mark."""
        self._below.append(self.stack)
        self.stack = []

    def above_mark(self) -> list[Any]:
        """Take off the last mark, and return what lay above it."""
        items = self.stack
        self.stack = self._below.pop()
        return items

    def take(self, position: int, size: int) -> bytes:
        """Return that many bytes; raises IndexError where the file has fewer."""
        taken = self.data[position : position + size]
        if len(taken) != size:
            raise IndexError
        return taken

    def number(self, position: int, size: int) -> int:
        """Return an unsigned number of that many bytes."""
        return int.from_bytes(self.take(position, size), "little")

    def extend(self, items: list[Any]) -> None:
        """Append items to the list on the stack."""
        target = self.stack[-1]
        if target.__class__ is not list:
            raise TypeError
        target.extend(items)

    def fill(self, items: list[Any]) -> None:
        """Put keys, each followed by its value, into the dict on the stack."""
        target, keys = self.stack[-1], items[::2]
        if target.__class__ is not dict or not _KEYS.issuperset(map(type, keys)):
            raise TypeError
        target.update(zip(keys, items[1::2], strict=True))

    def refuse(self, position: int) -> int:
        """Stop behind an opcode that makes anything but data."""
        opcode = self.data[position - 1]
        what = f"holds more than plain data (opcode 0x{opcode:02x} at byte {position - 1})"
        names: list[Any] = []
        if opcode in (_GLOBAL, _INST):
            names = self.data[position : position + 1000].decode("utf-8", "replace").split("\n")[:2]
        elif opcode == _STACK_GLOBAL:
            names = [name for name in self.stack[-2:] if isinstance(name, str)]
        if len(names) == 2:
            what = f"asks for {ascii('.'.join(names)[:100])[1:-1]}"
        raise TraceError(
            f"{self._name} is a pickle that {what}, which could run code; a memory snapshot needs"
            " nothing of this kind."
        )


# Each handler is given the position behind its opcode, and returns that of the next one.
_Handler = Callable[[_Machine, int], int]


def _skipping(size: int) -> _Handler:
    return lambda machine, position: position + size


def _pushing(make: Callable[[], Any]) -> _Handler:
    def push(machine: _Machine, position: int) -> int:
        machine.stack.append(make())
        return position

    return push


def _integer(size: int, signed: bool) -> _Handler:
    def push(machine: _Machine, position: int) -> int:
        end = position + size
        machine.stack.append(int.from_bytes(machine.data[position:end], "little", signed=signed))
        return end

    return push


def _long(machine: _Machine, position: int) -> int:
    end = position + 1 + machine.data[position]
    machine.stack.append(int.from_bytes(machine.data[position + 1 : end], "little", signed=True))
    return end


def _float(machine: _Machine, position: int) -> int:
    machine.stack.append(_FLOAT.unpack(machine.take(position, 8))[0])
    return position + 8


def _text(width: int) -> _Handler:
    """Return the handler of a text whose length has that many bytes."""

    def push(machine: _Machine, position: int) -> int:
        size, begin = machine.number(position, width), position + width
        machine.stack.append(machine.take(begin, size).decode("utf-8", "surrogatepass"))
        return begin + size

    return push


def _bytes(width: int) -> _Handler:
    def push(machine: _Machine, position: int) -> int:
        size, begin = machine.number(position, width), position + width
        machine.stack.append(machine.take(begin, size))
        return begin + size

    return push


def _mark(machine: _Machine, position: int) -> int:
    machine.mark()
    return position


def _pop(machine: _Machine, position: int) -> int:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.above_mark()
    return position


def _pop_mark(machine: _Machine, position: int) -> int:
    machine.above_mark()
    return position


def _tuple(machine: _Machine, position: int) -> int:
    items = tuple(machine.above_mark())
    machine.stack.append(items)
    return position


def _tuple_of(count: int) -> _Handler:
    def push(machine: _Machine, position: int) -> int:
        items = tuple(machine.stack[-count:])
        if len(items) != count:
            raise IndexError
        machine.stack[-count:] = [items]
        return position

    return push


def _append(machine: _Machine, position: int) -> int:
    item = machine.stack.pop()
    machine.extend([item])
    return position


def _extend(machine: _Machine, position: int) -> int:
    machine.extend(machine.above_mark())
    return position


def _set_item(machine: _Machine, position: int) -> int:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.fill([key, value])
    return position


def _set_items(machine: _Machine, position: int) -> int:
    machine.fill(machine.above_mark())
    return position


def _memoize(machine: _Machine, position: int) -> int:
    machine.memo[len(machine.memo)] = machine.stack[-1]
    return position


def _put(width: int) -> _Handler:
    def put(machine: _Machine, position: int) -> int:
        machine.memo[machine.number(position, width)] = machine.stack[-1]
        return position + width

    return put


def _get(width: int) -> _Handler:
    def get(machine: _Machine, position: int) -> int:
        machine.stack.append(machine.memo[machine.number(position, width)])
        return position + width

    return get


_OPCODES: dict[int, _Handler] = {
    **{_PROTO: _skipping(1), 0x95: _skipping(8)},
    **{ord("N"): _pushing(lambda: None), 0x88: _pushing(lambda: True)},
    **{0x89: _pushing(lambda: False), ord(")"): _pushing(tuple)},
    **{ord("]"): _pushing(list), ord("}"): _pushing(dict)},
    **{ord("K"): _integer(1, False), ord("M"): _integer(2, False), ord("J"): _integer(4, True)},
    **{0x8A: _long, ord("G"): _float},
    **{
        0x8C: _text(1),
        ord("X"): _text(4),
        0x8D: _text(8),
        ord("C"): _bytes(1),
        ord("B"): _bytes(4),
    },
    **{ord("("): _mark, ord("0"): _pop, ord("1"): _pop_mark},
    **{ord("t"): _tuple, 0x85: _tuple_of(1), 0x86: _tuple_of(2), 0x87: _tuple_of(3)},
    **{ord("a"): _append, ord("e"): _extend, ord("s"): _set_item, ord("u"): _set_items},
    **{0x94: _memoize, ord("q"): _put(1), ord("r"): _put(4), ord("h"): _get(1), ord("j"): _get(4)},
}
_HANDLERS = tuple(_OPCODES.get(opcode, _Machine.refuse) for opcode in range(256))
