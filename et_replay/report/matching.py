"""How the ranks of a job fit together in; text, or its JSON object, out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from et_replay.ranks.comparison import CallsOfKind
from et_replay.ranks.groups import and_more, group_text
from et_replay.ranks.matching import MatchedGroup, Matching
from et_replay.report.document import JsonObject
from et_replay.report.table import fields, section, table
from et_replay.units import counted, format_bytes

_SHOWN = 24
"""Rows of the table before the rest is only counted."""
_VERDICTS = {True: "yes", False: "no", None: "-"}


def matching_text(source: str, matching: Matching) -> str:
    """Write which ranks there are, what they call in which groups, and whether that fits."""
    text = fields(_summary(source, matching))
    rows = list(_rows(matching))
    if not rows:
        return text
    heading = ("group", "ranks", "alike", "call", "count", "size", "matched")
    shown = rows[:_SHOWN]
    if len(rows) > _SHOWN:
        shown.append((f"and {len(rows) - _SHOWN} more rows", *[""] * (len(heading) - 1)))
    right = ("ranks", "alike", "count", "size")
    return f"{text}\n{section('Collectives', table(heading, shown, right))}"


def matching_object(source: str, matching: Matching) -> JsonObject:
    """Give the same its JSON form."""
    mismatch = matching.mismatch
    return {
        "trace": source,
        "ranks": list(matching.ranks),
        "world_size": matching.world_size,
        "missing_ranks": list(matching.missing),
        "matched": matching.problem == "",
        "groups": [
            {
                "ranks": list(group.ranks),
                "instance": group.instance,
                "description": group.description,
                "collectives": [
                    {
                        "kind": kind,
                        "count": calls.number,
                        "size_bytes": calls.bytes,
                        "matched": calls.matched,
                    }
                    for kind, calls in group.kinds.items()
                ],
                "matched": group.matched,
            }
            for group in matching.groups
        ],
        "mismatch": None
        if mismatch is None
        else {
            "text": mismatch.text,
            "rank": mismatch.rank,
            "node_id": mismatch.node_id,
            "group": list(mismatch.group),
        },
        "notes": list(matching.notes),
    }


def _summary(source: str, matching: Matching) -> Iterator[tuple[str, str]]:
    yield "Job", source
    found = f"{and_more(matching.ranks)} of {matching.world_size}"
    yield "Ranks", found if matching.missing else f"all {matching.world_size}"
    sizes = Counter(len(group.ranks) for group in matching.groups)
    groups = (f"{counted(count, 'group')} of {size}" for size, count in sorted(sizes.items()))
    yield "Groups", ", ".join(groups) or "none with a call"
    yield "Matched", matching.problem or "all calls fit together"


class _Alike(NamedTuple):
    """What groups that one row of the table stands for have in common."""

    size: int
    description: str
    kinds: tuple[tuple[str, CallsOfKind], ...]


def _rows(matching: Matching) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of call in each group, groups with the same calls together."""
    alike: dict[_Alike, list[MatchedGroup]] = {}
    for group in matching.groups:
        kinds = tuple(sorted(group.kinds.items()))
        same = _Alike(len(group.ranks), group.description, kinds)
        alike.setdefault(same, []).append(group)
    for same, groups in alike.items():
        name = group_text(groups[0].ranks, groups[0].instance)
        for kind, calls in same.kinds:
            yield (
                name,
                str(same.size),
                str(len(groups)),
                kind,
                str(calls.number),
                format_bytes(calls.bytes),
                _VERDICTS[calls.matched],
            )
