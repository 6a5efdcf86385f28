"""Process groups: read of a trace's lists, else derived from the calls recorded in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_builder import NodeSpec, T, node, write_trace

from et_replay.formats import open_trace
from et_replay.ranks.groups import Groups, and_more, group_text, process_groups
from et_replay.ranks.own_rank import told_rank


def listing(text: str) -> NodeSpec:
    return node(3, "## process_group:init ##", 2, [text])


def entry(name: str, ranks: list[int], size: int, **others: object) -> dict[str, object]:
    return {"pg_name": name, "ranks": ranks, "group_size": size, **others}


def groups_of(
    tmp_path: Path, *nodes: NodeSpec, rank: int = 0, world_size: int | None = None
) -> Groups:
    return process_groups(open_trace(write_trace(tmp_path / "t.json", *nodes)), rank, world_size)


def recorded(
    id: int, group: object, *rest: int, name: str = "allreduce", rank: int = 0
) -> NodeSpec:
    """Return a record in its positional form; `rest` is [start, stride] size."""
    tensor = T(5, 6, 0, 4, 4)
    return node(
        id, "record_param_comms", 2, [[tensor], 7, group, rank, name, [], [], *rest], [[tensor]]
    )


def test_no_ranks_are_all_ranks_and_order_tells_groups_of_the_same_ranks_apart(
    tmp_path: Path,
) -> None:
    text = json.dumps(
        [
            entry("0", [], 4, pg_desc="default_pg", backend_config="cuda:nccl"),
            entry("1", [1, 3], 2, pg_desc="mesh_dp"),
            entry("5", [], 4),
            entry("ep_shard", [1, 3], 2),
        ]
    )
    found = groups_of(tmp_path, listing(text), rank=3)

    assert found.world_size == 4
    assert [group.key for group in found] == [
        ((0, 1, 2, 3), 0),
        ((1, 3), 0),
        ((0, 1, 2, 3), 1),
        ((1, 3), 1),
    ]
    assert [found.find(name) for name in ("0", "1", "5", "ep_shard", "7")] == [0, 1, 2, 3, -1]
    assert found[0].description == "default_pg"
    assert found[0].backend == "cuda:nccl"
    assert found.notes == ()


def test_the_ranks_of_a_group_keep_their_order(tmp_path: Path) -> None:
    found = groups_of(tmp_path, listing(json.dumps([entry("0", [2, 0, 1], 3)])))
    assert found[0].ranks == (2, 0, 1)


@pytest.mark.parametrize("key", ["backend_id", "uid"])
def test_older_traces_call_a_group_by_a_pointer(tmp_path: Path, key: str) -> None:
    found = groups_of(tmp_path, listing(json.dumps([entry("0", [], 2, **{key: 82149104})])))
    assert found.find("82149104") == found.find("0") == 0


def test_ranks_may_be_an_object_of_global_ranks_to_ranks_of_the_group(tmp_path: Path) -> None:
    text = json.dumps([{"pg_name": "1", "ranks": {"4": 1, "0": 0, "8": 2}, "group_size": 3}])
    assert groups_of(tmp_path, listing(text))[0].ranks == (0, 4, 8)


def test_of_a_list_that_was_cut_what_is_there_is_read(tmp_path: Path) -> None:
    whole = json.dumps([entry("0", [], 4), entry("1", [0, 1], 2), entry("2", [0, 2], 2)])
    found = groups_of(tmp_path, listing(whole[: whole.index("[0, 2]") + 3]))

    assert [group.ranks for group in found] == [(0, 1, 2, 3), (0, 1)]
    assert found.notes == (
        "The list of process groups in node 3 is damaged: 2 groups could be read of it.",
    )


def test_a_group_that_was_cut_off_is_derived_from_its_calls(tmp_path: Path) -> None:
    found = groups_of(
        tmp_path,
        listing(json.dumps([entry("0", [], 8)])[:-1]),
        recorded(4, ("2", "dp"), 1, 2, 4),
        rank=3,
    )
    assert found[found.find("2")].ranks == (1, 3, 5, 7)
    assert found[found.find("2")].description == "dp"


def test_attributes_tell_of_a_group_too(tmp_path: Path) -> None:
    record = node(
        4,
        "record_param_comms",
        2,
        collective_name="allreduce",
        pg_name="9",
        pg_desc="tp",
        pg_size=2,
        global_rank_start=2,
        global_rank_stride=1,
    )
    found = groups_of(tmp_path, record, rank=2, world_size=4)
    assert found[found.find("9")].ranks == (2, 3)
    assert found[found.find("9")].description == "tp"


def test_ranks_without_a_pattern_are_told_to_be_unknown(tmp_path: Path) -> None:
    found = groups_of(
        tmp_path,
        listing(json.dumps([entry("0", [], 8)])),
        recorded(4, ("4", "odd"), 0, -1, 3),
    )
    assert found.find("4") == -1
    assert found.notes == ("The trace does not tell which ranks are in 1 group: 4 of 3 ranks.",)


def test_pointers_without_a_list_or_a_size_stand_for_all_ranks(tmp_path: Path) -> None:
    found = groups_of(tmp_path, recorded(4, 94012888), recorded(5, 82149104), world_size=2)
    assert [group.key for group in found] == [((0, 1), 0), ((0, 1), 1)]
    assert found.find("94012888") == 0
    assert "all of 2 are taken to be" in found.notes[0]


def test_a_size_equal_to_that_of_the_job_is_the_whole_job(tmp_path: Path) -> None:
    found = groups_of(tmp_path, recorded(4, 94012888, 2), world_size=2)
    assert found[found.find("94012888")].ranks == (0, 1)
    assert found.notes == ()


def test_without_a_word_of_groups_there_is_one_of_all_ranks(tmp_path: Path) -> None:
    assert [group.ranks for group in groups_of(tmp_path, world_size=3)] == [(0, 1, 2)]
    assert len(groups_of(tmp_path)) == 0


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((0,), "(0)"),
        ((3, 4), "(3, 4)"),
        (tuple(range(8)), "(0..7)"),
        ((0, 8, 16, 24), "(0, 8 .. 24)"),
        ((0, 1, 5), "(0, 1, 5)"),
        ((9, 1, 2, 3, 4, 5, 6, 7, 8, 0), "(9, 1, 2, 3, 4, 5, 6, 7 and 2 more)"),
        ((2, 1, 0), "(2, 1 .. 0)"),
    ],
)
def test_a_group_is_written_short(ranks: tuple[int, ...], text: str) -> None:
    assert group_text(ranks) == text
    assert group_text(ranks, 1) == f"{text} #2"


def test_numbers_are_listed_up_to_eight() -> None:
    assert and_more([3]) == "3"
    assert and_more([0, 1, 4]) == "0, 1 and 4"
    assert and_more(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


def rank_told(tmp_path: Path, *nodes: NodeSpec) -> int | None:
    return told_rank(open_trace(write_trace(tmp_path / "t.json", *nodes)))


def test_the_only_rank_in_all_groups_wrote_the_trace(tmp_path: Path) -> None:
    text = json.dumps([entry("0", [], 4), entry("1", [1, 3], 2), entry("2", [2, 3], 2)])
    assert rank_told(tmp_path, listing(text)) == 3


def test_a_call_of_all_ranks_tells_the_rank_but_a_root_does_not(tmp_path: Path) -> None:
    broadcast = recorded(4, ("0", ""), 0, 1, 8, name="broadcast", rank=5)
    assert rank_told(tmp_path, broadcast) is None
    assert rank_told(tmp_path, broadcast, recorded(5, ("1", ""), 1, 2, 4, rank=3)) == 7


def test_the_making_of_a_group_tells_the_rank(tmp_path: Path) -> None:
    making = node(5, "record_param_comms", 2, [0, 94012, 6, "init", [], [], 8])
    text = json.dumps([entry("0", [], 8, backend_id=94012)])
    assert rank_told(tmp_path, listing(text), making) == 6


@pytest.mark.parametrize(
    "group",
    [
        {"pg_name": "1", "ranks": ["a"], "group_size": 1},
        {"pg_name": "1", "ranks": [0, 0], "group_size": 2},
        {"pg_name": "1", "ranks": [0, 10**12], "group_size": 2},
        {"pg_name": "1", "ranks": [-1, 0], "group_size": 2},
        {"pg_name": "1", "ranks": "all", "group_size": 2},
        {"pg_name": "1"},
    ],
)
def test_ranks_that_cannot_be_are_told(tmp_path: Path, group: dict[str, object]) -> None:
    found = groups_of(tmp_path, listing(json.dumps([entry("0", [], 2), group])))
    assert [each.ranks for each in found] == [(0, 1)]
    assert found.notes == (
        "The list of process groups in node 3 is damaged: 1 group could be read of it.",
    )


def test_a_size_beyond_any_job_is_no_size(tmp_path: Path) -> None:
    found = groups_of(tmp_path, recorded(4, ("3", ""), 0, 1, 10**12), world_size=2)
    assert found[found.find("3")].ranks == (0, 1)
