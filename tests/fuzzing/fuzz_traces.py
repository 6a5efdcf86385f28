"""Mutates traces, and reads and understands them: what goes wrong must be an error in a sentence.

Run as `python tests/fuzzing/fuzz_traces.py --seconds 3600 TRACE ...`. Of each trace a slice of
nodes is taken, so that a case takes milliseconds. A case that raises anything but EtReplayError,
takes more than ten seconds, or lets memory grow by more than a fixed amount and a multiple of its
size, is kept in the folder --output, and the program ends with 1. The same --seed makes the same
cases.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any

from et_replay.errors import EtReplayError
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_plannable
from et_replay.program import Mode, allocation_events, build_program, history_of, select_window
from et_replay.ranks.digest import digest
from et_replay.ranks.inference import infer
from et_replay.ranks.matching import calls_in
from et_replay.ranks.own_rank import told_rank
from et_replay.report.description import describe
from et_replay.report.document import document
from et_replay.report.info import info_object, info_text

SLICE = 120
LIMIT_S = 10
SPARE_KIB, KIB_PER_BYTE = 200 * 1024, 0.2
STRANGE = (
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63) - 1, 1e308, -0.0, "", "<None>", "<Tensor>", "nan",
    "Tensor(float)", "GenericList[Tensor(float),Tensor(float)]", "Tuple[Int]", "cuda:7", "\ud800",
    "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", [], {}, [[[]]],
    [0, 0, 0, 0, 0, ""], [1, 1, 2**40, 2**50, 4, "cuda:0"], [9] * 40, {"name": "rf_id"},
)  # fmt: skip


def main() -> None:
    """Mutate until the time is over, or something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    slices = [part for path in arguments.traces for part in slices_of(path)]
    chooser = random.Random(arguments.seed)
    signal.signal(signal.SIGALRM, too_long)
    end = time.monotonic() + arguments.seconds
    cases = refused = 0
    while time.monotonic() < end:
        content = mutated(chooser, slices)
        path = arguments.output / f"case_{arguments.seed}.json"
        path.write_bytes(content)
        outcome = tried(path, len(content))
        cases += 1
        refused += outcome == "refused"
        if outcome not in ("refused", "understood"):
            kept = path.rename(path.with_name(f"failed_{arguments.seed}_{cases}.json"))
            raise SystemExit(f"Case {cases}, kept as {kept}:\n{outcome}")
        if cases % 2000 == 0:
            print(f"{cases} cases, {refused} refused", file=sys.stderr, flush=True)
    print(f"{cases} cases, {refused} refused, no failure")


def slices_of(path: Path) -> list[dict[str, Any]]:
    """Cut a trace into a few slices of nodes that follow each other."""
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    nodes = document["nodes"]
    starts = {0, len(nodes) // 3, 2 * len(nodes) // 3, max(len(nodes) - SLICE, 0)}
    return [{**document, "nodes": nodes[start : start + SLICE]} for start in sorted(starts)]


def mutated(chooser: random.Random, slices: list[dict[str, Any]]) -> bytes:
    """Take a slice, and change some of its values, its nodes, or its bytes."""
    document = json.loads(json.dumps(chooser.choice(slices)))
    for _ in range(chooser.choice((1, 1, 2, 4, 12))):
        change(chooser, document, slices)
    content = json.dumps(document).encode()
    if chooser.random() < 0.2:
        content = change_bytes(chooser, bytearray(content))
    return content


def change(chooser: random.Random, document: Any, slices: list[dict[str, Any]]) -> None:
    """Walk to some place in the document, and put something else there."""
    if not document:
        return
    place = parent = document
    key: Any = next(iter(document))
    for _ in range(chooser.randrange(1, 9)):
        if isinstance(place, (dict, list)) and place:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            parent, key = place, chooser.choice(keys)
            place = parent[key]
        else:
            break
    kind = chooser.randrange(6)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(chooser.randrange(len(parent) + 1), deepcopy(chooser.choice(parent)))
    elif kind == 2 and isinstance(parent, list):
        chooser.shuffle(parent)
    elif kind == 3:
        other = chooser.choice(slices)["nodes"]
        parent[key] = deepcopy(chooser.choice(other)) if other else None
    elif kind == 4 and isinstance(place, int):
        parent[key] = place + chooser.choice((-1, 1, 2**32, -(2**40)))
    else:
        parent[key] = deepcopy(chooser.choice(STRANGE))


def change_bytes(chooser: random.Random, content: bytearray) -> bytes:
    """Cut, repeat or overwrite bytes."""
    begin = chooser.randrange(len(content))
    end = min(len(content), begin + chooser.choice((1, 3, 100, 10**6)))
    kind = chooser.randrange(3)
    if kind == 0:
        del content[begin:end]
    elif kind == 1:
        content[begin:begin] = content[begin : min(end, begin + 1000)]
    else:
        for at in range(begin, min(end, begin + 100)):
            content[at] = chooser.randrange(256)
    return bytes(content)


def tried(path: Path, size: int) -> str:
    """Read a case and do with it all that needs no torch; return what came of it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(LIMIT_S)
    try:
        understand(path)
        outcome = "understood"
    except EtReplayError as error:
        outcome = "refused" if "\n" not in str(error) else f"An error of several lines: {error}"
    except BaseException:
        outcome = traceback.format_exc()
    finally:
        signal.alarm(0)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown > SPARE_KIB + KIB_PER_BYTE * size:
        return f"{size} bytes let memory grow by {grown} KiB."
    return outcome


def understand(path: Path) -> None:
    """Read a trace, list its memory events in two modes and its calls, and describe it."""
    found = open_plannable(path)
    if not isinstance(found, ExecutionTrace):
        return
    program = build_program(found, select_window(found, None))
    for mode in (Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE):
        allocation_events(program, mode)
    history_of(program, None)
    description = describe(program)
    info_text(description)
    document("info", [info_object(description)])
    told_rank(found)
    calls = calls_in(found, rank=0, world_size=2)
    digest(*calls)
    infer({0: calls, 1: calls})


def too_long(signum: int, frame: FrameType | None) -> None:
    """Stop a case that takes too long."""
    raise TimeoutError(f"It took more than {LIMIT_S} s.")


if __name__ == "__main__":
    main()
