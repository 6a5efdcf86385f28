"""Real traces of several versions: their groups and calls are read as they were."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from et_replay.formats import open_trace
from et_replay.ranks.collective import Collective
from et_replay.ranks.groups import Groups
from et_replay.ranks.matching import calls_in
from et_replay.ranks.own_rank import told_rank


def read(file: Path, world_size: int) -> tuple[Groups, list[Collective]]:
    return calls_in(open_trace(file), 0, world_size)


@pytest.mark.parametrize("version", ["1.0.3", "1.1.0", "1.1.1"])
def test_data_parallel_resnet(shared_data: Path, version: str) -> None:
    groups, calls = read(shared_data / "traces" / f"param_resnet_{version}.json.gz", 1)

    assert [(group.ranks, group.description) for group in groups] == [((0,), "default_pg")]
    assert Counter(call.kind for call in calls) == {"all_reduce": 15, "broadcast": 6, "wait": 6}
    assert {call.group for call in calls if call.kind != "wait"} == {0}
    first = calls[0]
    assert (first.kind, first.root, first.dtype, first.in_elements) == (
        "broadcast",
        0,
        "float",
        53120,
    )
    numbers = [call.sequence for call in calls if call.kind != "wait"]
    assert numbers == list(range(numbers[0] or 0, (numbers[0] or 0) + 21))
    assert {call.sequence for call in calls if call.kind == "wait"} < set(numbers)


def test_all_gather_in_a_group_called_by_a_pointer(shared_data: Path) -> None:
    file = shared_data / "traces" / "chakra_allgather_1.0.2.json.gz"
    groups, calls = read(file, 2)

    assert [(group.ranks, group.names) for group in groups] == [((0, 1), {"0", "82149104"})]
    assert Counter(call.kind for call in calls) == {"all_gather": 10, "wait": 10}
    assert {(call.in_sizes, call.out_sizes) for call in calls if call.kind == "all_gather"} == {
        ((1,), (1, 1))
    }
    assert told_rank(open_trace(file)) == 0
