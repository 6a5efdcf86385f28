"""Who made a storage, as a memory snapshot tells: entries and blocks in, their makers out.

What names the maker of

    empty_strided_cuda   ??                                  plumbing of the allocator
    at::_ops::addmm::call  ??                                the operator
    linear               site-packages/torch/nn/functional.py:114
    forward              /home/me/model/block.py:41          the innermost frame of the program
    main                 /home/me/train.py:7                 what encloses it

is the operator with the innermost frame of the program: "aten::addmm at model/block.py:41 forward".
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

from et_replay.origins import MemoryClass

NOT_RECORDED = "not recorded"
"""The maker where only a category or the user's metadata is known."""

_LONGEST = 120  # of a name, in characters
_DEEPEST = 512  # so many frames are read of a stack, the innermost ones
_ENCLOSING = 8

_FIELDS = itemgetter("filename", "name", "line")
_READABLE = frozenset({str, int})
_LAST_LINE = 10**9

_TORCH = re.compile(
    r"(?:^|/(?:site|dist)-packages/|/pytorch/)torch/"
    r"|/torch/(?=(?:autograd|nn|optim|utils|_\w+)/|_\w+\.py$)"
)
_OPERATOR = re.compile(r"\bat::_ops::(\w+)::\w|\baten::(\w+)")
_OVERLOAD = re.compile(r"_[A-Z]\w*$")
_FACTORY = "aten::empty"  # operators that begin so make the storage for another operator
_PLUMBING = re.compile(
    r"(?:torch::)?unwind::|torch::CapturedTraceback::|c10::|at::detail::empty|at::TensorBase"
    r"|at::native::empty|_start\b|__libc_|_?Py[A-Z]"
)

_CATEGORIES = {
    "PARAMETER": MemoryClass.WEIGHT,
    "GRADIENT": MemoryClass.GRADIENT,
    "ACTIVATION": MemoryClass.ACTIVATION,
    "OPTIMIZER_STATE": MemoryClass.OPTIMIZER_STATE,
    "INPUT": MemoryClass.INPUT,
    "TEMPORARY": MemoryClass.TEMPORARY,
}


class Phase(enum.Enum):
    """What a program was doing; the values say what its storages are if they live on."""

    OPTIMIZER = MemoryClass.OPTIMIZER_STATE
    BACKWARD = MemoryClass.GRADIENT
    FORWARD = MemoryClass.ACTIVATION
    SETUP = MemoryClass.WEIGHT


# The innermost frame to match any of these tells the phase. They are matched with "file:function",
# where torch's own files begin with "torch/"; how long a storage must live is in snapshot_origins.
_PHASES = (
    (Phase.OPTIMIZER, re.compile(r"torch/optim/")),
    (Phase.SETUP, re.compile(r"torch/nn/modules/module\.py:(?:_apply|to|cuda)$")),
    (Phase.SETUP, re.compile(r"torch/nn/(?:modules/[^:]*:__init__$|parameter\.py:)")),
    (Phase.SETUP, re.compile(r".*\.py:load_state_dict$")),
    # function.py runs the forward as well as the backward of what users define
    (Phase.BACKWARD, re.compile(r"torch/autograd/(?!function|grad_mode|profiler)")),
    (Phase.BACKWARD, re.compile(r".*\.py:(?:_engine_run_backward|backward)$")),
    (Phase.BACKWARD, re.compile(r".*\btorch::autograd::(?:Engine::|generated::\w+Backward)")),
    (Phase.FORWARD, re.compile(r".*\.py:(?:forward|_call_impl|_wrapped_call_impl)$")),
)


@dataclass(frozen=True, slots=True)
class Stack:
    """The maker of storages, and what tells their class: the category, or else the phase."""

    maker: str
    within: tuple[str, ...]
    category: MemoryClass | None
    phase: Phase | None


FRAMELESS = Stack("a thread without Python frames, as autograd's", (), None, Phase.BACKWARD)
"""Of an allocation without frames, in a snapshot whose other allocations have some."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame as it is shown; `own` is one of the program's, in no file of torch."""

    text: str
    own: bool
    python: bool
    operator: str
    phase: Phase | None


class StackTable:
    """The different stacks of a snapshot, by number; the snapshot must outlive the table."""

    def __init__(self) -> None:
        self.stacks: list[Stack] = []
        self._numbers: dict[tuple[int, str, str], int] = {}
        self._contents: dict[tuple[str | int, ...], int] = {(): 0}
        self._lists: dict[int, int] = {}  # by id: a pickle can repeat a long list at no cost
        self._frames: dict[tuple[str | int, ...], _Frame] = {}

    def add(self, record: dict[str, Any]) -> int:
        """Return the number of the stack that an entry or a block shows; -1 if it shows none."""
        frames, category = record.get("frames"), record.get("category")
        metadata = record.get("user_metadata")
        if frames is None and "history" in record:
            frames = _oldest_layout(record["history"])
        if not (frames or category or metadata):
            return self._frameless() if frames == [] and "action" in record else -1
        if category.__class__ is not str:
            category = ""
        if metadata.__class__ is not str:
            metadata = ""
        listed: list[Any] = frames if frames.__class__ is list else []
        key = self._content(listed) if listed else 0, category, metadata
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._describe(listed, category, metadata)
        return number

    def _frameless(self) -> int:
        key = -1, "", ""
        if key not in self._numbers:
            self._numbers[key] = len(self.stacks)
            self.stacks.append(FRAMELESS)
        return self._numbers[key]

    def _content(self, frames: list[Any]) -> int:
        """Return a number that is the same for equal frames."""
        number = self._lists.get(id(frames))
        if number is None:
            number = self._contents.setdefault(_flat(frames), len(self._contents))
            self._lists[id(frames)] = number
        return number

    def _describe(self, recorded: list[Any], category: str, metadata: str) -> int:
        flat = iter(_flat(recorded))
        frames = [self._frame(fields) for fields in zip(flat, flat, flat, strict=True)]
        frames = [frame for frame in frames if frame.text]
        own = [frame.text for frame in frames if frame.own]
        within = own[_ENCLOSING:0:-1]
        if metadata:
            within.append(_clean(metadata))
        stack = Stack(
            maker=_maker(frames),
            within=tuple(within),
            category=_CATEGORIES.get(category.rpartition(".")[2].upper()),
            phase=next((frame.phase for frame in frames if frame.phase), None),
        )
        if not (frames or within or stack.category):
            return -1
        self.stacks.append(stack)
        return len(self.stacks) - 1

    def _frame(self, fields: tuple[str | int, ...]) -> _Frame:
        known = self._frames.get(fields)
        if known is None:
            known = self._frames[fields] = _read_frame(*fields)
        return known


def _oldest_layout(history: Any) -> Any:
    """Return the frames of a block as torch before 2.1 writes them."""
    first = history[0] if history.__class__ is list and history else None
    return first.get("frames") if first.__class__ is dict else None


def _flat(frames: list[Any]) -> tuple[str | int, ...]:
    """Return file, function and line of each frame in a row; "" is what cannot be read."""
    if len(frames) > _DEEPEST:
        frames = frames[:_DEEPEST]
    try:
        flat = tuple(chain.from_iterable(map(_FIELDS, frames)))
    except (KeyError, TypeError, IndexError):
        return tuple(chain.from_iterable(map(_readable, frames)))
    if _READABLE.issuperset(map(type, flat)):
        return flat
    return tuple(chain.from_iterable(map(_readable, frames)))


def _readable(frame: Any) -> Iterable[str | int]:
    fields: list[Any] = [""] * 3
    if frame.__class__ is dict:
        fields = [frame.get("filename"), frame.get("name"), frame.get("line")]
    return [field if isinstance(field, str) or type(field) is int else "" for field in fields]


def _read_frame(file: str | int, name: str | int, line: str | int) -> _Frame:
    path = file.replace("\\", "/") if isinstance(file, str) else ""
    name = name if isinstance(name, str) else ""
    if not (path.endswith(".py") or (path.startswith("<") and not path.startswith("<frozen"))):
        operator = _operator(name)
        text = "" if name.strip("? ") == "" else _clean(name)
        return _Frame(text, False, False, operator, _phase(f":{name}"))
    inside = _TORCH.search(path)
    place = "/".join(path.rsplit("/", 2)[-2:])
    if isinstance(line, int) and 0 < line < _LAST_LINE:
        place += f":{line}"
    where = f"torch/{path[inside.end() :]}" if inside else path
    return _Frame(
        text=_clean(f"{place} {name}".rstrip()),
        own=inside is None,
        python=True,
        operator="",
        phase=_phase(f"{where}:{name.rpartition('.')[2]}"),
    )


def _phase(where: str) -> Phase | None:
    """Return the phase that one frame tells; names as long as no name is tell none."""
    if len(where) > 10 * _LONGEST:
        return None
    return next((phase for phase, pattern in _PHASES if pattern.match(where)), None)


def _operator(name: str) -> str:
    found = _OPERATOR.search(name, 0, 10 * _LONGEST)
    if found is None:
        return ""
    return _clean(f"aten::{_OVERLOAD.sub('', found[1]) if found[1] else found[2]}")


def _maker(frames: Sequence[_Frame]) -> str:
    """Name the maker: the operator, if known, and the innermost frame that tells something."""
    own = next((index for index, frame in enumerate(frames) if frame.own), None)
    operators = [frame.operator for frame in frames[:own] if frame.operator]
    telling = [operator for operator in operators if not operator.startswith(_FACTORY)]
    operator = next(iter(telling or operators), "")
    if own is not None:
        place = frames[own].text
    elif operator:
        place = next((frame.text for frame in frames if frame.python), "")
    else:
        named = [frame.text for frame in frames]
        telling = [text for text in named if not _PLUMBING.match(text)]
        place = next(iter(telling or named), NOT_RECORDED)
    return _clean(" at ".join(filter(None, (operator, place))))


def _clean(text: str) -> str:
    """Return a text that can be shown on one line."""
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1] + "…"
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
