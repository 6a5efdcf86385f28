"""Tables of buffers: columns in any order, what is no buffer, and the events they stand for."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from history_rows import rows

from et_replay.errors import TraceError
from et_replay.formats import BufferTable, Kind, open_buffers, open_history, sniff

TABLE = """\
id,lower,upper,size
b1,0,3,4
b2,3,9,4
b3,0,9,4
"""


def read(tmp_path: Path, text: str) -> BufferTable:
    file = tmp_path / "buffers.csv"
    file.write_text(text)
    return open_buffers(file)


def columns(table: BufferTable) -> list[tuple[int, ...]]:
    b = table.buffers
    taken = (b.start, b.end, b.size, b.alignment, b.offset)
    return list(zip(*(column.tolist() for column in taken), strict=True))


def test_a_table_is_its_buffers(tmp_path: Path) -> None:
    table = read(tmp_path, TABLE)

    assert table.names == ("b1", "b2", "b3")
    assert columns(table) == [(0, 3, 4, 1, -1), (3, 9, 4, 1, -1), (0, 9, 4, 1, -1)]
    assert table.notes == ()


def test_columns_stand_in_any_order_beside_others(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        'Size,hint,"upper",lower,alignment,id,offset\n100,x,7,2,64,b,\n8,y,9,0,,"a,1",32\n',
    )

    assert table.names == ("b", "a,1")
    assert columns(table) == [(2, 7, 100, 64, -1), (0, 9, 8, 1, 32)]


def test_a_packed_table_is_recognised(tmp_path: Path) -> None:
    file = tmp_path / "buffers.csv.xz"
    file.write_bytes(lzma.compress(TABLE.encode()))

    assert sniff(file) is Kind.BUFFER_TABLE
    assert len(open_buffers(file).buffers) == 3


def test_what_is_no_buffer_is_left_out_and_named(tmp_path: Path) -> None:
    table = read(tmp_path, TABLE + "b4,1,two,4\n\nb5,0,1,-4\nb6,0\nb7,1,2,8\n")

    assert table.names == ("b1", "b2", "b3", "b7")
    assert table.notes == ("Rows that are no buffer were left out: 3, first line 5 (b4,1,two,4).",)


def test_numbers_beyond_64_bits_are_no_buffer(tmp_path: Path) -> None:
    table = read(tmp_path, TABLE + f"b4,1,2,{2**63}\n")

    assert len(table.names) == 3


def test_a_table_of_nothing_but_wrong_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"holds no buffer.*line 2 \(b,1,2,x\)"):
        read(tmp_path, "id,lower,upper,size\nb,1,2,x\n")


def test_a_table_without_rows_has_no_buffers(tmp_path: Path) -> None:
    assert len(read(tmp_path, "id,lower,upper,size\n").buffers) == 0


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="needed is a CSV of buffers"):
        read(tmp_path, '{"nodes": []}')


def test_as_events_ends_come_before_beginnings(tmp_path: Path) -> None:
    file = tmp_path / "buffers.csv"
    file.write_text(TABLE + "b4,5,5,4\nb5,1,2,0\n")

    history = open_history(file)

    assert history.kind == "table of buffers"
    assert rows(history) == [
        ("ALLOC", 0, 4, 0, 0),
        ("ALLOC", 2, 4, 0, 0),
        ("FREE", 0, 4, 0, 0),
        ("ALLOC", 1, 4, 0, 0),
        ("FREE", 1, 4, 0, 0),
        ("FREE", 2, 4, 0, 0),
    ]
