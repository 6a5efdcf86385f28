"""Subgraphs: a window inside of a window, which an annotation spans."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import lives, operation_ids, program_of
from trace_builder import NodeSpec, T, mark, node, operator, thread, write_trace

from et_replay.errors import UsageError
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_trace
from et_replay.program import annotation_spans, select_window


def two_layers() -> list[NodeSpec]:
    """Return two steps of two layers each; the last layer of the last step is nodes 15 to 17."""
    return [
        mark(3, "ProfilerStep#3"),
        mark(4, "layer", 3),
        operator(5, "aten::mm", 4),
        mark(6, "layer", 3),
        operator(7, "aten::mm", 6),
        mark(10, "ProfilerStep#4"),
        operator(11, "aten::zeros", 10),
        mark(12, "layer", 10),
        operator(13, "aten::mm", 12),
        operator(14, "aten::relu", 10),
        mark(15, "layer", 10),
        mark(16, "part", 15),
        operator(17, "aten::mm", 16),
        operator(18, "aten::relu", 10),
    ]


def trace_of(folder: Path, *nodes: NodeSpec) -> ExecutionTrace:
    return open_trace(write_trace(folder / "trace.json", *nodes))


@pytest.mark.parametrize(
    ("text", "name", "operations"),
    [
        ("/layer", "ProfilerStep#4/layer#2", [17]),
        ("/layer#1", "ProfilerStep#4/layer#1", [13]),
        ("/part", "ProfilerStep#4/part#1", [17]),
        ("3/layer", "ProfilerStep#3/layer#2", [7]),
        ("first/layer#1", "ProfilerStep#3/layer#1", [5]),
        ("all/layer#3", "all/layer#3", [13]),
        ("5:14/layer", "5:14/layer#2", [13]),
        ("all/ProfilerStep#3", "all/ProfilerStep#3#1", [5, 7]),
        ("all/ProfilerStep#4#1", "all/ProfilerStep#4#1", [11, 13, 14, 17, 18]),
    ],
)
def test_a_subgraph_is_what_an_annotation_spans(
    tmp_path: Path, text: str, name: str, operations: list[int]
) -> None:
    program = program_of(tmp_path, *two_layers(), window=text)

    assert program.window.name == name
    assert operation_ids(program) == operations
    assert select_window(program.trace, name) == program.window


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "/head",
            "has no annotation 'head' in window ProfilerStep#4;"
            " it has ProfilerStep#4, layer, part.",
        ),
        ("/aten::mm", "has no annotation 'aten::mm' in window ProfilerStep#4; "),
        (
            "/layer#" + 5000 * "9",
            "has no annotation 'layer#9999",
        ),
        (
            "/layer#3",
            "has no 'layer#3' in window ProfilerStep#4: there are 2 of the name, counted from 1.",
        ),
        ("7/layer", "has no window '7'; it has ProfilerStep#3, ProfilerStep#4 "),
    ],
)
def test_a_subgraph_that_is_not_there_is_refused_in_a_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    trace = trace_of(tmp_path, *two_layers())

    with pytest.raises(UsageError) as caught:
        select_window(trace, text)

    assert sentence in str(caught.value)


def test_the_backward_thread_belongs_to_the_annotation_that_waits_for_it(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        mark(3, "backward"),
        thread(4, tid=2),
        node(5, "autograd::engine::evaluate_function: MmBackward0", 4, tid=2),
        operator(6, "aten::mm", 5, tid=2),
        operator(7, "aten::relu"),
        operator(8, "aten::mm", 4, tid=2),
        window="/backward",
    )

    assert operation_ids(program) == [6]


def test_one_of_several_of_a_name_with_a_line_break_is_found_by_its_number(tmp_path: Path) -> None:
    nodes = [mark(3, "two\nlines"), operator(4, "aten::mm", 3), mark(5, "two\nlines")]

    program = program_of(tmp_path, *nodes, window="/two\nlines#1")

    assert (program.window.name, operation_ids(program)) == ("all/two\nlines#1", [4])


def test_what_exists_before_a_subgraph_is_its_input(tmp_path: Path) -> None:
    a, b, c, d = (T(number, number, 0, 10, 4) for number in (11, 12, 13, 14))
    program = program_of(
        tmp_path,
        operator(3, "aten::relu", inputs=[a], outputs=[b]),
        mark(4, "layer"),
        operator(5, "aten::relu", 4, inputs=[b], outputs=[c]),
        operator(6, "aten::relu", 4, inputs=[c], outputs=[d]),
        operator(7, "aten::relu", inputs=[b], outputs=[a]),
        window="/layer",
    )

    assert lives(program) == [
        (12, "input", 40, 5),
        (13, "produced", 40, 6),
        (14, "produced", 40, 6),
    ]


def test_all_annotations_have_the_spans_that_subgraphs_have(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *two_layers())
    window = select_window(trace)

    spans = annotation_spans(trace, window)

    ids = trace.ids.tolist()
    assert [(span.name, ids[span.begin], ids[span.end - 1]) for span in spans] == [
        ("ProfilerStep#4", 10, 18),
        ("layer", 12, 13),
        ("layer", 15, 17),
        ("part", 16, 17),
    ]
