"""Tables of buffers: columns in any order, what is no buffer, and the events they stand for."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest
from history_rows import rows

from et_replay.errors import TraceError
from et_replay.formats import BufferTable, Kind, open_plannable, open_recording, sniff

TABLE = """\
id,lower,upper,size
b1,0,3,4
b2,3,9,4
b3,0,9,4
"""


def read(tmp_path: Path, text: str) -> BufferTable:
    file = tmp_path / "buffers.csv"
    file.write_text(text)
    table = open_plannable(file)
    assert isinstance(table, BufferTable)
    return table


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
    assert len(open_plannable(file).buffers) == 3


def test_what_is_no_buffer_is_left_out_and_named(tmp_path: Path) -> None:
    table = read(tmp_path, TABLE + "b4,1,two,4\n\nb5,0,1,-4\nb6,0\nb7,1,2,8\n")

    assert table.names == ("b1", "b2", "b3", "b7")
    assert table.notes == (
        "Rows that are no buffer were left out: 3, first line 5: expected a whole number in the"
        " column upper, got 'two'.",
    )


def test_numbers_beyond_64_bits_are_no_buffer(tmp_path: Path) -> None:
    table = read(tmp_path, TABLE + f"b4,1,2,{2**63}\n")

    assert len(table.names) == 3


def test_a_table_of_nothing_but_wrong_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"holds no buffer.*line 2: expected a whole number in"):
        read(tmp_path, "id,lower,upper,size\nb,1,2,x\n")


def test_a_table_without_rows_has_no_buffers(tmp_path: Path) -> None:
    assert len(read(tmp_path, "id,lower,upper,size\n").buffers) == 0


def test_as_events_ends_come_before_beginnings(tmp_path: Path) -> None:
    file = tmp_path / "buffers.csv"
    file.write_text(TABLE + "b4,5,5,4\nb5,1,2,0\n")

    history = open_recording(file)

    assert history.kind == "table of buffers"
    assert rows(history) == [
        ("ALLOC", 0, 4, 0, 0),
        ("ALLOC", 2, 4, 0, 0),
        ("FREE", 0, 4, 0, 0),
        ("ALLOC", 1, 4, 0, 0),
        ("FREE", 1, 4, 0, 0),
        ("FREE", 2, 4, 0, 0),
    ]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("b4,9,3,4,,", "expected at least its lower 9 in the column upper, got 3"),
        ("b4,0,3,-4,,", "expected 0 to 2305843009213693952 in the column size, got '-4'"),
        ("b4,0,3,1_000,,", "expected a whole number in the column size, got '1_000'"),
        ("b4,0,3,4,0,", "expected 1 to 2305843009213693952 in the column alignment, got '0'"),
        ("b4,0,3,4,,-1", "expected 0 to 2305843009213693952 in the column offset, got '-1'"),
        ("b4,0,3,4,,,7", "expected 6 columns, got 7"),
        ("b4,0,3", "expected 6 columns, got 3"),
    ],
)
def test_a_row_that_is_no_buffer_is_left_out_or_strictly_refused(
    tmp_path: Path, row: str, fault: str
) -> None:
    text = f"id,lower,upper,size,alignment,offset\nb1,0,3,4,,\n{row}\n"
    table = read(tmp_path, text)

    assert table.names == ("b1",)
    assert table.notes == (f"Rows that are no buffer were left out: 1, first line 3: {fault}.",)
    with pytest.raises(TraceError, match=re.escape(f"is damaged: In line 3: {fault}.")):
        open_plannable(tmp_path / "buffers.csv", strict=True)


def test_buffers_of_one_id_are_kept_and_named(tmp_path: Path) -> None:
    table = read(tmp_path, TABLE + "b1,4,5,8\n")

    assert table.names == ("b1", "b2", "b3", "b1")
    assert table.notes == (
        "Rows with the id of another one: 1. The id 'b1' stands in line 2 and again in line 5.",
    )
    with pytest.raises(TraceError, match="again in line 5"):
        open_plannable(tmp_path / "buffers.csv", strict=True)


def test_empty_cells_behind_the_last_column_are_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "id,lower,upper,size\nb1,0,3,4,,\n").notes == ()


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    table = read(tmp_path, '\n\nid,lower,upper,size\n"b\n1",0,3,4\nb2,0,3,x\n')

    assert "first line 6: " in table.notes[0]


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="has 2 columns size, expected one"):
        read(tmp_path, "id,lower,upper,size,size\na,0,1,2,3\n")


def test_what_csv_cannot_hold_is_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"is no readable CSV: line 5: "):
        read(tmp_path, f"{TABLE}b4,1,2,{'4' * 200000}\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("id,lower,upper\na,0,1\n", "is a CSV without a column size in line 1; needed is a CSV"),
        ("id;lower;upper;size\na;0;1;2\n", "is a CSV with ';' between its columns, expected ','"),
        ("a,0,1,2\nb,0,1,2\n", "is a CSV whose line 1 names no columns; needed is a CSV"),
    ],
)
def test_a_table_that_lacks_its_first_line_is_told_so(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(TraceError, match=complaint):
        read(tmp_path, text)
    with pytest.raises(TraceError, match=complaint):
        open_recording(tmp_path / "buffers.csv")


def test_a_packed_table_that_breaks_off_is_strictly_refused(tmp_path: Path) -> None:
    file = tmp_path / "buffers.csv.xz"
    file.write_bytes(lzma.compress(TABLE.encode() * 999)[:-40])

    for read_file in (open_plannable, open_recording):
        with pytest.raises(TraceError, match="is damaged: The xz stream breaks off"):
            read_file(file, strict=True)
