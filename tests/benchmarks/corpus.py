"""Replays every variant of a corpus of traces on the CPU; says which results are as recorded.

Run as `python tests/benchmarks/corpus.py FOLDER [--mode lazy]`, on a folder that
`traces/operators.py` has written. Every top-level operation counts once: its results have the
recorded shapes, types and strides, or it is listed by its reason.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from replay.corpus import Variant, check_all

from et_replay.program import Mode


def general(reason: str) -> str:
    """Take the numbers out of a reason, so that its like are counted together."""
    without_shapes = re.sub(r"\[[^]]*\]|\([\d, ]*\)", "[…]", reason)
    return re.sub(r"\d+(\.\d+)?(e-\d+)?", "N", without_shapes)[:150]


def report(found: list[Variant], names: bool) -> None:
    """Print the numbers, then the reasons by how often they come."""
    operations = sum(variant.operations for variant in found)
    as_recorded = sum(variant.as_recorded for variant in found)
    empty = sum(not variant.operations for variant in found)
    print(f"{len(found)} variants, {empty} of them without an operator")
    print(f"{operations} operations, {as_recorded} executed as recorded")
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for variant in found:
        for outcome, operator, reason in variant.remarks:
            kind = outcome, general(reason)
            counts[kind] += 1
            examples[kind][f"{operator} in {variant.name}" if names else operator] += 1
    for (outcome, reason), count in sorted(counts.items(), key=lambda c: (c[0][0], -c[1])):
        most = ", ".join(name for name, _ in examples[outcome, reason].most_common(6))
        print(f"{count:6} {outcome:12} {reason} ({most})")


def main() -> None:
    """Replay the corpus, and print how many operations run as recorded, and why others do not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=("pre", "lazy"), default="pre")
    parser.add_argument("--only", default="", help="regular expression in the names of variants")
    parser.add_argument("--names", action="store_true", help="name the variants of each reason")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mode = Mode.PRE_ALLOCATE if arguments.mode == "pre" else Mode.LAZY_ALLOCATE
    report(list(check_all(arguments.folder, mode, arguments.only)), arguments.names)


if __name__ == "__main__":
    main()
