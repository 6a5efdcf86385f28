"""Broken files: what is intact is read, what is not is counted, strict reading refuses."""

from __future__ import annotations

import json
import math
import random

import pytest
from trace_builder import FLAT, LATEST, T, Typed, node, operator, trace

from et_replay.errors import TraceError
from et_replay.execution_trace import Opaque

TENSOR = T(3, 4, 0, 6, 4, shape=(2, 3))
NODES = (
    operator(5, "aten::relu", 2, [TENSOR, [1, 2], None, 'a {string} [with] "quotes" \\'], [TENSOR]),
    node(6, "a label: {odd}, [name]", 2),
    operator(7, "aten::add", 6, [TENSOR, 1.5], [T(5, 6, 0, 6, 4)], pg_name="0"),
)


def as_observer(content):
    """Write a trace as PyTorch does, each node on a line of its own."""
    head = json.dumps({key: value for key, value in content.items() if key != "nodes"})[:-1]
    nodes = ",\n".join(f"    {json.dumps(each)}" for each in content["nodes"])
    return f'{head},\n  "nodes": [\n{nodes}\n  ],\n  "finish_ts": 9\n}}'


def ends_of_nodes(text, content):
    """Return the offset at which each node of the list is complete."""
    return [
        text.index(each) + len(each)
        for each in (json.dumps(recorded) for recorded in content["nodes"])
    ]


@pytest.mark.parametrize(
    ("schema", "lines", "name_first"),
    [(FLAT, False, False), (FLAT, True, False), (LATEST, False, True), (LATEST, True, False)],
)
def test_file_cut_at_any_byte_never_loses_a_complete_node(read_text, schema, lines, name_first):
    content = trace(NODES[0], NODES[1], schema=schema)
    if name_first:
        content["nodes"] = [{"name": each["name"], **each} for each in content["nodes"]]
    text = as_observer(content) if lines else json.dumps(content)
    ends = ends_of_nodes(text, content)
    ids = [each["id"] for each in content["nodes"]]

    for cut in range(len(text)):
        complete = sorted(ids[: sum(end <= cut for end in ends)])
        if not complete:
            with pytest.raises(TraceError):
                read_text(text[:cut])
            continue
        read = read_text(text[:cut])
        assert read.ids.tolist() == complete
        assert read.notes[0].startswith("The file breaks off")
        for position in range(len(read)):
            assert not damaged(read.node(position))
        if cut % 20 == 0:
            with pytest.raises(TraceError, match="is damaged: "):
                read_text(text[:cut], strict=True)


def damaged(got):
    return any(isinstance(value, Opaque) for value in got.inputs + got.outputs)


def test_notes_say_how_much_of_a_cut_file_was_read_and_ignored(read_text):
    text = as_observer(trace(*NODES))
    inside, between = text.index('"id": 7') + 20, text.index('{"id": 7') - 6

    assert read_text(text[:inside]).notes == (
        "The file breaks off: 3 complete nodes of it could be read, and its last 21 bytes ignored.",
    )
    assert read_text(text[:between]).notes == (
        "The file breaks off: 3 complete nodes of it could be read.",
    )


def test_cut_file_keeps_the_schema_and_what_stands_before_the_nodes(read_text):
    text = json.dumps(trace(*NODES))

    read = read_text(text[: text.index('"finish_ts"')])

    assert read.schema == LATEST
    assert read.metadata == {
        "schema": LATEST,
        "pid": 7,
        "time": "2024-05-24 12:00:25",
        "start_ts": 100,
    }


@pytest.mark.parametrize("schema", [FLAT, LATEST])
@pytest.mark.parametrize(
    "name",
    [
        'say "hi" \\ there',
        '5" nails',
        "C:\\data\\x",
        "two\nlines\tand\x01",
        'f{x} "q" [y]',
        '"',
        "\\",
        'a", "b',
    ],
)
def test_name_that_was_not_escaped_is_repaired_and_its_node_kept(read_text, schema, name):
    escaped = json.dumps(trace(*NODES, operator(8, "NAME", 2, [TENSOR]), schema=schema))
    text = escaped.replace("NAME", name, 1)

    read = read_text(text)

    assert read.ids.tolist() == [1, 2, 5, 6, 7, 8]
    assert read.names[5] == read.node(5).name == name
    assert read.node(5).inputs[0].shape == (2, 3)
    assert read.notes == (
        "Repaired names with quotes, backslashes or control characters that were not escaped: "
        "node 8.",
    )
    with pytest.raises(TraceError, match="is damaged: "):
        read_text(text, strict=True)


def test_escaped_names_are_not_escaped_twice(read_text):
    name = 'say "hi" \\ there\n'
    text = json.dumps(trace(operator(5, name, 2), operator(6, "BAD", 2)))
    text = text.replace("BAD", 'b"d', 1)

    assert read_text(text).names[2:] == [name, 'b"d']


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("NaN", math.nan),
        ("-nan", math.nan),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("inf", math.inf),
        ("-inf", -math.inf),
    ],
)
def test_bare_words_for_numbers_are_read_as_numbers(read_text, word, value):
    text = json.dumps(trace(operator(5, "aten::fill", 2, [Typed("WORD", "Double"), "nan inf"])))

    read = read_text(text.replace('"WORD"', word))

    number, string = read.node(2).inputs
    assert number == value or (math.isnan(number) and math.isnan(value))
    assert string == "nan inf"
    assert read.notes == ("Repaired values that JSON does not allow, such as a bare nan: node 5.",)


def test_bytes_that_are_no_utf8_are_replaced(read_text):
    text = json.dumps(trace(operator(5, "aten::NAME", 2, ["STRING"]))).encode()

    read = read_text(text.replace(b"NAME", b"\xff").replace(b"STRING", b"a\xfe"))

    assert read.names[2] == "aten::\ufffd"
    assert read.node(2).inputs == ("a\ufffd",)
    assert read.notes == ("Replaced bytes that are not UTF-8 by U+FFFD: node 5.",)


def test_local_time_in_another_encoding_costs_nothing(read_text):
    text = json.dumps(trace(*NODES)).encode().replace(b"2024-05-24", b"\xc4\xea 24")

    for content in (text, text[:-20]):
        read = read_text(content)
        assert read.schema == LATEST
        assert read.metadata["time"] == "\ufffd\ufffd 24 12:00:25"
    assert read_text(text).notes == ()


def test_bytes_that_are_no_utf8_in_a_value_are_found_when_it_is_decoded(read_text):
    text = json.dumps(trace(operator(5, "aten::op", 2, ["STRING"]))).encode()
    text = text.replace(b"STRING", b"a\xfe")

    assert read_text(text).node(2).inputs == ("a\ufffd",)
    with pytest.raises(TraceError, match=r"is damaged: .* in node 5 \(aten::op\)\."):
        read_text(text, strict=True)


@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00 x", "1e999"])
def test_lone_surrogates_and_endless_numbers_are_no_traceback(read_text, escape):
    text = json.dumps(trace(operator(5, "aten::op", 2, ["VALUE"])))
    value = escape if escape == "1e999" else f'"{escape}"'

    assert read_text(text.replace('"VALUE"', value)).node(2).op_schema != ""


def test_rubbish_after_the_end_is_ignored_and_counted(read_text):
    text = json.dumps(trace(*NODES))

    read = read_text(text + '\n{"foo": [1, 2]} rubbish')

    assert read.ids.tolist() == [1, 2, 5, 6, 7]
    assert read.metadata["finish_ts"] == 200
    assert read.notes == ("What follows the end of the trace was ignored (23 bytes).",)


def test_second_trace_in_one_file_is_ignored_and_counted(read_text):
    text = json.dumps(trace(*NODES))

    read = read_text(text + text)

    assert read.ids.tolist() == [1, 2, 5, 6, 7]
    assert read.notes == (f"What follows the end of the trace was ignored ({len(text)} bytes).",)


@pytest.mark.parametrize("schema", [FLAT, LATEST])
def test_node_that_cannot_be_repaired_is_left_out_alone(read_text, schema):
    text = json.dumps(trace(*NODES, schema=schema))

    read = read_text(text.replace('"rf_id"', '"rf_id"]]', 3).replace('"rf_id"]]', '"rf_id"', 2))

    assert read.ids.tolist() == [1, 2, 5, 7]
    assert read.notes[0].startswith("Left out: 1 unreadable piece between the nodes (")
    assert ", node 6)." in read.notes[0]


@pytest.mark.parametrize("schema", [FLAT, LATEST])
@pytest.mark.parametrize("damage", [', "x": }', ', "x": ]', ', "x": [', ', "x": {', ', "x": "'])
def test_stray_structure_costs_its_own_node_at_most(read_text, schema, damage):
    nodes = [operator(5 + i, "aten::op", 2, [TENSOR]) for i in range(9)]
    text = json.dumps(trace(*nodes, schema=schema))
    place = text.index('"aten::op"', text.index('"id": 9') - 40) + len('"aten::op"')

    read = read_text(text[:place] + damage + text[place:])

    others = [1, 2, 5, 6, 7, 8, 10, 11, 12, 13]
    assert [each for each in read.ids.tolist() if each != 9] == others
    assert read.notes


def test_missing_comma_between_nodes_costs_nothing(read_text):
    text = json.dumps(trace(*NODES))

    read = read_text(text.replace('}, {"id": 6', '} {"id": 6'))

    assert read.ids.tolist() == [1, 2, 5, 6, 7]


def test_trailing_comma_after_the_last_node_costs_nothing(read_text):
    text = json.dumps(trace(*NODES))

    read = read_text(text.replace('], "finish_ts"', ',], "finish_ts"'))

    assert read.ids.tolist() == [1, 2, 5, 6, 7]
    assert read.metadata["finish_ts"] == 200
    assert read.notes == ()


FIELD = "Read in spite of an id, a name or a parent of an unexpected type: node 5."


@pytest.mark.parametrize(
    ("key", "value", "ids", "note"),
    [
        ("id", "5", [1, 2, 5, 6, 7], FIELD),
        ("name", None, [1, 2, 5, 6, 7], FIELD),
        ("ctrl_deps", "x", [1, 2, 5, 6, 7], FIELD),
        ("ctrl_deps", 2**64, [1, 2, 5, 6, 7], FIELD),
        ("id", None, [1, 2, 6, 7], "Left out: 1 unreadable piece between the nodes"),
        ("id", 2**64, [1, 2, 6, 7], "Left out: 1 unreadable piece between the nodes"),
        ("id", True, [1, 2, 6, 7], "Left out: 1 unreadable piece between the nodes"),
        ("id", 5.5, [1, 2, 6, 7], "Left out: 1 unreadable piece between the nodes"),
    ],
)
def test_field_of_an_unexpected_type_costs_no_other_node(read_text, key, value, ids, note):
    content = trace(*NODES)
    content["nodes"][1][key] = value

    read = read_text(json.dumps(content))

    assert read.ids.tolist() == ids
    assert read.notes[0].startswith(note)


def test_entries_that_are_no_nodes_are_left_out_and_counted(read_text):
    content = trace(*NODES)
    content["nodes"][1:1] = [5, "x", None, [], {}]

    read = read_text(json.dumps(content))

    assert read.ids.tolist() == [1, 2, 5, 6, 7]
    assert read.notes[0].startswith("Left out: 5 unreadable pieces between the nodes (")


def test_nesting_too_deep_for_any_reader_costs_its_own_node_only(read_text):
    text = json.dumps(trace(*NODES))
    deep = "[" * 50_000 + "]" * 50_000

    read = read_text(text.replace('"name": "aten::add"', f'"name": "aten::add", "x": {deep}'))

    assert read.ids.tolist() == [1, 2, 5, 6]
    assert ", node 7)." in read.notes[0]


def test_file_without_its_beginning_gives_its_nodes(read_text):
    text = json.dumps(trace(*NODES))

    read = read_text(text[text.index('{"id": 6') - 30 :])

    assert read.ids.tolist() == [1, 6, 7]
    assert "The file names no schema; it was read by its structure." in read.notes


def test_damage_of_several_kinds_is_told_in_several_notes(read_text):
    bad = operator(8, "BAD", 2), operator(9, "LOST", 99)
    text = json.dumps(trace(*NODES, *bad)).replace("BAD", 'b"d', 1)

    notes = read_text(text[: text.index('"id": 1,') - 1]).notes

    assert [note.split()[0] for note in notes] == ["The", "Repaired", "1"]


def test_odd_quotes_and_escapes_take_linear_time(read_text):
    text = json.dumps(trace(*NODES))[:-40]

    parts = ('\\"', '"', "{", '{"name": "', "\\", '"name": "", ', '"name": "x, ', " ,", "]", "}")
    for tail in (part * (200_001 // len(part)) for part in parts):
        assert len(read_text(text + tail)) >= 3
        assert len(read_text(text + ', {"id": 9, "name": "' + tail)) >= 3


@pytest.mark.parametrize("seed", range(8))
def test_random_damage_gives_a_trace_or_a_trace_error_and_nothing_else(read_text, seed):
    generator = random.Random(seed)
    whole = json.dumps(trace(*NODES, schema=generator.choice([FLAT, LATEST]))).encode()

    for _ in range(60):
        text = bytearray(whole)
        for _ in range(generator.randrange(1, 6)):
            place = generator.randrange(len(text))
            length = generator.choice([0, 1, 1, 9, 200])
            new = generator.choice(
                [b"", b'"', b"\\", b"{", b"}", b"]", b"\xff", b"nan", b",", b"9"]
            )
            text[place : place + length] = new
        strict = generator.random() < 0.2
        try:
            read = read_text(bytes(text), strict)
        except TraceError:
            continue
        assert all(read.parents < range(len(read)))
        assert [read.node(i).id for i in range(len(read))] == sorted(read.ids.tolist())
