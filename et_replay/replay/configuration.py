"""A JSON file in, what a replay is to import and to leave out; and the file that says so out."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from et_replay.errors import UsageError
from et_replay.execution_trace import Node
from et_replay.replay.operators import recorded_name
from et_replay.replay.result import Unexecuted


class Skip(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Operations that are not executed, and why.

    `operator` is a name as `aten::mm` or `aten::add.Tensor`, or a pattern of the shell such as
    `fbgemm::*`; with `nodes`, only operations with these ids are meant.
    """

    operator: str
    reason: str
    nodes: tuple[int, ...] | None = None

    def matches(self, node: Node) -> bool:
        """Tell whether `node` is one of them."""
        if self.nodes is not None and node.id not in self.nodes:
            return False
        return any(fnmatchcase(name, self.operator) for name in (node.name, recorded_name(node)))


class Configuration(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"imports": "import"}
):
    """What the file of --config says; `imports` are modules that register operators."""

    imports: tuple[str, ...] = ()
    skip: tuple[Skip, ...] = ()

    def extended(self, imports: Iterable[str], unexecuted: Iterable[Unexecuted]) -> Configuration:
        """Add modules, and what a replay with this configuration could not execute."""
        found = (
            Skip(glob.escape(each.operator), each.reason, None if each.all else each.node_ids)
            for each in unexecuted
        )
        return Configuration(
            tuple(dict.fromkeys((*self.imports, *imports))),
            tuple(dict.fromkeys((*self.skip, *found))),
        )

    def document(self) -> bytes:
        """Write it as read_configuration reads it."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def read_configuration(path: str) -> Configuration:
    """Read a configuration; raises UsageError naming what is wrong with it."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Configuration)
    except OSError as error:
        raise UsageError(f"--config {path} cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--config {path} is no configuration: {error}; expected"
            ' {"import": ["module"], "skip": [{"operator": "aten::mm", "reason": "why"}]}.'
        ) from error


def reason_to_skip(node: Node, skips: Sequence[Skip]) -> str | None:
    """Return why `node` is not to be executed; None if it is. The first that matches counts."""
    return next((skip.reason for skip in skips if skip.matches(node)), None)


def unmatched(skips: Sequence[Skip], nodes: Sequence[Node]) -> Iterator[tuple[int, str]]:
    """Yield of which of `skips`, by their places, and what they name, none of `nodes` is one."""
    of_each_name = list({(node.name, node.op_schema): node for node in nodes}.values())
    for index, skip in enumerate(skips):
        if not any(map(skip.matches, of_each_name if skip.nodes is None else nodes)):
            yield index, skip.operator if skip.nodes is None else f"{skip.operator} with its nodes"
