"""What a file holds: a path or `-` goes in, bytes come out, unpacked, and in UTF-8 if text."""

from __future__ import annotations

import codecs
import errno
import lzma
import mmap
import os
import stat
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from et_replay.errors import TraceError

STANDARD_INPUT = "-"

BREAKS_OFF = "breaks off"
"""What is said of a file that lacks its end, plain or compressed."""
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_XZ = b"\xfd7zXZ\x00"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Source:
    """A file's content: `name` is for messages, `damage` is a sentence about a broken compression.

    `text` is UTF-8, except where the file holds no text at all.
    """

    name: str
    text: memoryview
    damage: str = ""


def read_source(path: str | os.PathLike[str]) -> Source:
    """Read a file, or standard input for `-`; raises TraceError where that cannot be."""
    piped = os.fspath(path) == STANDARD_INPUT
    name = "standard input" if piped else os.fspath(path)
    try:
        packed = memoryview(_read_standard_input() if piped else _read_file(path))
    except IsADirectoryError:
        raise TraceError(f"{name} is a folder; give the trace file in it.") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"Cannot read {name}: {reason}.") from error
    if bytes(packed[:2]) == _GZIP:
        return _unpack(name, packed, "gzip", lambda: zlib.decompressobj(wbits=31), zlib.error)
    if bytes(packed[:4]) == _ZSTD:
        return _unpack(name, packed, "zstd", *_zstd(name))
    if bytes(packed[:6]) == _XZ:
        return _unpack(name, packed, "xz", lzma.LZMADecompressor, lzma.LZMAError)
    return Source(name, _as_utf8(packed))


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read()


def _read_file(path: str | os.PathLike[str]) -> bytes | mmap.mmap:
    """Map a file into memory; read what cannot be mapped, such as a pipe or an empty file."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISCHR(status.st_mode) and not file.isatty():
            raise OSError(errno.EINVAL, "it is a device, not a file")
        if stat.S_ISREG(status.st_mode) and status.st_size:
            try:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError:  # some network and virtual file systems cannot map
                pass
        return file.read()


def _zstd(name: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Return what makes a decompressor, and its error: Python 3.14's own, else zstandard's."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdDecompressor, zstd.ZstdError
    try:
        import zstandard
    except ImportError:
        raise TraceError(
            f"{name} is compressed with zstd, which needs the package zstandard here: "
            "pip install zstandard."
        ) from None
    return lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError


def _unpack(
    name: str, packed: memoryview, kind: str, start: Callable[[], Any], error: type[Exception]
) -> Source:
    """Decompress stream after stream; where one breaks off, keep what came out before."""
    text = bytearray()
    magic = bytes(packed[:2])
    position, damage = 0, ""
    while not damage and bytes(packed[position : position + 2]) == magic:
        position, damage = _unpack_stream(packed, position, start, error, text)
    rest = len(packed) - position
    if not damage and bytes(packed[position:]).strip(b"\0"):  # padding with zeros is allowed
        damage = f"goes on for {rest} bytes after its end"
    return Source(name, _as_utf8(memoryview(text)), damage and f"The {kind} stream {damage}.")


def _unpack_stream(
    packed: memoryview,
    begin: int,
    start: Callable[[], Any],
    error: type[Exception],
    text: bytearray,
) -> tuple[int, str]:
    """Append one stream's content to `text`; return where it ends and what is wrong with it."""
    stream, position = start(), begin
    while position < len(packed):
        chunk = packed[position : position + _CHUNK]
        try:
            text += stream.decompress(chunk)
        except error:
            return position, _unpack_damaged(packed, begin, position, start(), error, text)
        position += len(chunk)
        if stream.eof:
            return position - len(stream.unused_data), ""
    return position, BREAKS_OFF


def _unpack_damaged(
    packed: memoryview,
    begin: int,
    position: int,
    stream: Any,
    error: type[Exception],
    text: bytearray,
) -> str:
    """Append what a damaged chunk at `position` still gives, byte by byte on a fresh stream.

    A failing call gives nothing, not even what it unpacked before the damage.
    """
    for done in range(begin, position, _CHUNK):
        stream.decompress(packed[done : done + _CHUNK])
    for done in range(position, min(position + _CHUNK, len(packed))):
        try:
            text += stream.decompress(packed[done : done + 1])
        except error:
            return f"is damaged near byte {done}"
    return f"is damaged near byte {position}"


def _as_utf8(text: memoryview) -> memoryview:
    """Take off a byte order mark; Windows shells write UTF-16 behind theirs."""
    if bytes(text[:3]) == codecs.BOM_UTF8:
        return text[3:]
    if bytes(text[:2]) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return memoryview(bytes(text).decode("utf-16", "replace").encode())
    return text
