"""Chakra's linked host and device JSON: the host's calls as they were, kernels as labels."""

from __future__ import annotations

import json

from trace_builder import T, operator, trace

from et_replay.program import build_program, select_window

INPUT, OUTPUT = T(8, 9, 0, 6, 4), T(10, 11, 0, 6, 4)


def linked() -> str:
    """Return a trace with one call and its kernel, as chakra_trace_link writes it.

    Its ids start at 0, and a kernel is a copy of its call with a name, a category and times.
    """
    content = trace(operator(2, "aten::relu", 1, [INPUT], [OUTPUT]), roots=False)
    thread, root = trace()["nodes"]
    (call,) = content["nodes"]
    times = {"inclusive_dur": 9.5, "exclusive_dur": 4, "ts": 100.25, "inter_thread_dep": None}
    kernel = call | {
        "id": 3,
        "ctrl_deps": 2,
        "cat": "kernel",
        "name": 'void relu<"x">()',
        "ph": "X",
        "inclusive_dur": 2,
        "exclusive_dur": 2,
        "ts": 111,
        "stream": 7,
        "sync_dep": [2],
    }
    content["nodes"] = [root | {"id": 0, "ctrl_deps": 0}, thread | {"id": 1, "ctrl_deps": 0}]
    content["nodes"] += [call | times, kernel]
    return json.dumps(content, indent=4)


def test_host_call_is_read_with_its_times(read_text):
    read = read_text(linked(), strict=True)

    call = read.node(2)
    assert (call.name, call.parent, len(call.inputs)) == ("aten::relu", 1, 1)
    assert call.is_operator
    assert call.attributes == {
        "inclusive_dur": 9.5,
        "exclusive_dur": 4,
        "ts": 100.25,
        "inter_thread_dep": None,
    }
    assert read.parents.tolist() == [-1, 0, 1, 2]
    assert read.notes == ()


def test_kernel_is_a_label_without_the_values_of_its_call(read_text):
    kernel = read_text(linked()).node(3)

    assert (kernel.name, kernel.op_schema) == ('void relu<"x">()', "")
    assert (kernel.inputs, kernel.outputs) == ((), ())
    assert not kernel.is_operator
    assert (kernel.attributes["cat"], kernel.attributes["stream"]) == ("kernel", 7)


def test_only_the_call_is_an_operation(read_text):
    read = read_text(linked())

    program = build_program(read, select_window(read))

    assert [operation.node.id for operation in program.operations] == [2]
    assert len(program.storages) == 2
