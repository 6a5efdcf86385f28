"""Pickles of plain data are read; of whatever else is in one, nothing runs and nothing grows."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections import OrderedDict

import pytest
from snapshot_builder import MIB, block, entry, freed, segment, snapshot

from et_replay.errors import TraceError
from et_replay.formats import open_recording
from et_replay.formats.harmless_pickle import load_if_harmless
from et_replay.formats.plain_pickle import load_carefully, load_plain

SMALL = snapshot(
    [segment(4 * MIB, block(MIB), block(MIB, "inactive"), segment_pool_id=(0, 0))],
    [entry("alloc", 4 * MIB, MIB), *freed(4 * MIB, MIB), entry("alloc", 4 * MIB, MIB)],
)
PLAIN = [
    SMALL,
    [],
    {"a": [1, -1, 255, 256, 65535, 65536, -(2**31), 2**31, 2**62, -(2**63), True, False, None]},
    [1.5, -0.0, 1e300, "", "text", "x" * 300, "é\U0001f600", (), (1,), (1, 2), (1, 2, 3)],
    [(1, 2, 3, 4), [[[[]]]], {1: 2, None: 3, 1.5: "x"}],
    {"frames": [{"name": "f" * 50, "line": number} for number in range(1000)]},
]


class Runs:
    """What unpickling would turn into a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def recursive() -> list:
    content: list = []
    content.append(content)
    return content


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("content", PLAIN, ids=range(len(PLAIN)))
def test_plain_data_comes_out_as_it_went_in(content, protocol):
    assert load_plain(pickle.dumps(content, protocol), "file") == content


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_bytes_are_plain_data_where_the_protocol_has_them(protocol):
    assert load_plain(pickle.dumps([b"short", b"x" * 300], protocol), "file") == [
        b"short",
        b"x" * 300,
    ]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_both_unpicklers_agree_and_snapshots_take_the_fast_one(protocol):
    data = pickle.dumps(SMALL, protocol)

    assert load_if_harmless(data) == (True, SMALL)
    assert load_carefully(data, "file") == SMALL


@pytest.mark.parametrize(
    ("content", "asked"),
    [
        (Runs(os.system, "touch ran"), "system"),
        (Runs(eval, "1 + 1"), "eval"),
        ({"segments": [Runs(os.system, "touch ran")]}, "system"),
        (OrderedDict(segments=[]), r"collections\.OrderedDict"),
        ({"segments": {1, 2}}, "set"),
        (2j, "complex"),
        (subprocess.Popen, "Popen"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_class_or_function_is_named_and_never_used(read_history, content, asked, protocol):
    data = pickle.dumps(content, protocol)

    if protocol == 4 and asked == "set":
        asked = "more than plain data"
    with pytest.raises(TraceError, match=rf"{asked}.*could run code.*\.$"):
        read_history(data)
    assert not os.path.exists("ran")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo of two billion entries
        b"\x80\x02X\xff\xff\xff\xff.",  # a text of four billion bytes
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f].",
        b"\x80\x02" + b"]" * 200_000,
        b"\x80\x02" + b"(" * 200_000 + b".",
        b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"K\x01s.",  # a deep tuple as a key
        b"\x80\x02]" + b"q\x00h\x00a" * 100_000 + b".",
        b"\x80\x02N(NNtb.",  # sets the state of None
        b"\x80\x02.",
        b"\x80\x02",
        b"\x80\x02Ks.",
        b"\x80\x02]]s.",
        b"\x80\x02h\x07.",
        b"\x80\x02\x8cnothing.",
        b"\x80\x04\x8c\x02\xff\xff.",
        b"\x80\x02P1\n.",
        b"\x80\x02}(K\x01u.",
        pickle.dumps(recursive()),
        pickle.dumps({"segments": recursive(), "device_traces": recursive()}),
    ],
)
def test_malicious_or_damaged_pickle_is_a_sentence(read_history, data):
    with pytest.raises(TraceError, match=r"\.$"):
        read_history(data)


def test_list_that_repeats_its_parts_is_refused_before_they_are_copied(read_history):
    shared = [block(512) for _ in range(3000)]
    segments = [{**segment(0), "blocks": shared} for _ in range(3000)]

    with pytest.raises(TraceError, match="repeats its parts"):
        read_history(snapshot(segments))


@pytest.mark.parametrize("protocol", [2, 4])
def test_pickle_cut_at_any_byte_is_a_sentence(read_history, protocol):
    data = pickle.dumps(SMALL, protocol)

    for size in range(len(data)):
        with pytest.raises(TraceError, match=r"\.$"):
            read_history(data[:size])
    assert len(read_history(data).events) > 0


@pytest.mark.parametrize("seed", range(4))
def test_mutated_pickle_is_read_or_is_a_sentence(read_history, seed):
    data, generator = pickle.dumps(SMALL, 2 + seed % 3), random.Random(seed)

    for _ in range(600):
        changed = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            changed[generator.randrange(2, len(changed))] = generator.randrange(256)
        try:
            read_history(bytes(changed))
        except TraceError as error:
            assert str(error).endswith(".")


def test_reading_a_hostile_pickle_stays_small(tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "from et_replay.errors import TraceError\n"
        "from et_replay.formats import open_recording\n"
        "try: open_recording(sys.argv[1])\n"
        "except TraceError as error: print(error)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", limited, str(path)], capture_output=True, text=True
    )

    assert done.stdout.startswith(str(path)), done.stderr


def test_pickle_of_real_snapshots_is_read_by_both_unpicklers(shared_data):
    for path in sorted((shared_data / "snapshots").glob("*.pickle")):
        harmless, content = load_if_harmless(path.read_bytes())
        assert harmless
        assert content == pickle.loads(path.read_bytes())
        assert open_recording(path).source == str(path)
