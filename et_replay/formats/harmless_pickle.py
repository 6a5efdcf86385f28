"""Whether Python's own unpickler, which is fast, can do no harm with a file: bytes in, data out.

Harm is a class or function, a memo that reserves gigabytes for an index that a file just names,
and tuples in tuples so deep that hashing one overflows the stack. A regular expression reads opcode
after opcode and knows none of these; it takes a tenth of the time that unpickling takes.
"""

from __future__ import annotations

import io
import pickle
import re
from functools import lru_cache
from typing import Any

_FAILURES = (
    *(pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, ImportError),
    *(LookupError, MemoryError, TypeError, ValueError, RecursionError),
)
_TEXTS = {0x8C: 1, ord("X"): 4, 0x8D: 8}  # opcodes of text, and the bytes of its length
_SHORT = 40  # texts below this many bytes are left to the expression
_OPCODES_AT_ONCE = 500  # the expression remembers each, to step back where the next one fails


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def load_if_harmless(data: bytes) -> tuple[bool, Any]:
    """Return True and the object that a pickle describes; False where it may be no plain data."""
    if not _is_harmless(data):
        return False, None
    try:
        return True, _Unpickler(io.BytesIO(data)).load()
    except _FAILURES:
        return False, None


def _is_harmless(data: bytes) -> bool:
    opcodes = _opcodes(len(data).bit_length())
    position = 2
    while True:
        match = opcodes.match(data, position)
        if match is not None:
            position = match.end()
        opcode = data[position] if position < len(data) else None
        if opcode in _TEXTS:
            begin = position + 1 + _TEXTS[opcode]
            position = begin + int.from_bytes(data[position + 1 : begin], "little")
            if position > len(data):
                return False
        elif match is None:
            return opcode == ord(".")


@lru_cache(maxsize=8)
def _opcodes(bits: int) -> re.Pattern[bytes]:
    """Return the expression for some opcodes of a file whose length has so many bits."""
    integer = rb"(?:K.|M..|J....|%b)" % b"|".join(
        rb"\x8a%b.{%d}" % (re.escape(bytes([size])), size) for size in range(1, 10)
    )
    remember = rb"(?:\x94|q.|%b)" % _long_put(bits)
    pair = rb"%b%b?%b%b?\x86" % (integer, remember, integer, remember)
    others = rb"h.|j....|[](}Nuaes\x88\x89]|G.{8}|\x95.{8}"
    texts = b"|".join(rb"%b(?:%b)" % (re.escape(bytes([op])), _texts(op)) for op in (0x8C, 0x58))
    everything = b"|".join((pair, integer, others, remember, texts))
    return re.compile(rb"(?s:%b){1,%d}" % (everything, _OPCODES_AT_ONCE))


def _long_put(bits: int) -> bytes:
    """Return the expression for an entry of the memo below the next power of two of the length."""
    digits = []
    for position in range(0, 32, 8):
        free = min(max(bits - position, 0), 8)
        digits.append(b"." if free == 8 else b"[\\x00-\\x%02x]" % ((1 << free) - 1))
    return b"r" + b"".join(digits)


def _texts(opcode: int) -> bytes:
    width = _TEXTS[opcode]
    sizes = (re.escape(size.to_bytes(width, "little")) for size in range(_SHORT))
    return b"|".join(rb"%b.{%d}" % (text, size) for size, text in enumerate(sizes))
