"""The logs of STAlloc's and RMM's allocators, line by line."""

from __future__ import annotations

import pytest
from history_rows import rows

from et_replay.errors import TraceError

STALLOC = """\
Iteration Index : head
1 0x7f1e41329c00 4096 0
Iteration Index : 0
forward micro-batch : F
layers.0.mlp->SwitchMLP Layer : F-start
1 0x7f1e4132ac00 100 0x55d0
0 0x7f1e41329c00 4096 0
1 0 0 0
Iteration Index : end
0 0x7f1e4132ac00 100 0x55d0
"""

RMM = """\
Thread,Time,Action,Pointer,Size,Stream
7,14:21:19.998533,allocate,0x30a000000,256,0x2
7,14:21:20.000001,allocate failure,(nil),1024,0x2
8,14:21:20.000002,allocate,0x30a000100,512,0
7,14:21:32.661875,free,0x30a000000,256,0x2
7,1634567890.345678,deallocate,0x30a000100,512,0x7f8a38001020
"""


def test_stalloc_log_is_its_allocations_and_frees(read_history):
    history = read_history(STALLOC)

    assert history.kind == "STAlloc log"
    assert history.notes == ()
    assert rows(history) == [
        ("ALLOC", 0, 4096, 0, 0x7F1E41329C00),
        ("ALLOC", 1, 100, 0x55D0, 0x7F1E4132AC00),
        ("FREE", 0, 4096, 0, 0x7F1E41329C00),
        ("FREE", 1, 100, 0x55D0, 0x7F1E4132AC00),
    ]


def test_rmm_log_is_its_allocations_failures_and_frees(read_history):
    history = read_history(RMM)

    assert history.kind == "RMM log"
    assert history.notes == ("Events of 2 threads were taken in the order of the log.",)
    assert rows(history) == [
        ("ALLOC", 0, 256, 2, 0x30A000000),
        ("OUT_OF_MEMORY", -1, 1024, 2, 0),
        ("ALLOC", 1, 512, 0, 0x30A000100),
        ("FREE", 0, 256, 2, 0x30A000000),
        ("FREE", 1, 512, 0, 0x30A000100),
    ]


def test_rmm_log_without_its_header_is_recognised_by_a_row(read_history):
    without = RMM.partition("\n")[2].replace("\n", "\r\n")

    assert rows(read_history(without)) == rows(read_history(RMM))


@pytest.mark.parametrize("text", [STALLOC, RMM])
def test_lines_that_cannot_be_read_are_counted_and_the_first_is_named(read_history, text):
    history = read_history(f"{text}\nrubbish\n1 0xfffffffffffffffff 5 5\n")
    line = text.count("\n") + 2

    assert len(history.events) >= 4
    assert history.notes[-1] == f"Lines that could not be read were left out: 2, first line {line}."


def test_numbers_beyond_any_device_are_left_out(read_history):
    assert len(read_history(STALLOC + "1 0xffffffffffffffff 5 0\n").events) == 4
    assert len(read_history(RMM + "7,x,free,0xffffffffffffffff,5,0\n").events) == 5


def test_sizes_are_read_up_to_what_can_be_planned(read_history):
    most, more = 2**61, 2**61 + 1

    assert len(read_history(STALLOC + f"1 0x10 {most} 0\n").events) == 5
    assert len(read_history(STALLOC + f"1 0x10 {more} 0\n").events) == 4
    assert len(read_history(RMM + f"7,x,allocate,0x10,{most},0\n").events) == 6
    assert len(read_history(RMM + f"7,x,allocate,0x10,{more},0\n").events) == 5


def test_block_freed_twice_was_allocated_before_the_log_began(read_history):
    history = read_history(STALLOC + "0 0x7f1e41329c00 4096 0\n")

    assert rows(history)[0] == ("ALLOC", 2, 4096, 0, 0x7F1E41329C00)
    assert history.notes[0].startswith("Blocks freed in it but allocated before it began: 1,")


@pytest.mark.parametrize("text", [RMM.partition("7")[0], "Iteration Index : 0\n"])
def test_log_without_a_row_is_refused(read_history, text):
    with pytest.raises(TraceError, match=r"\.$"):
        read_history(text)
