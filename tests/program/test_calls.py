"""Which recorded calls are executed for an operator: it, or those below it."""

from __future__ import annotations

from pathlib import Path

from program.programs import program_of
from trace_builder import T, Typed, node, operator

GIVEN = T(40, 41, 0, 10, 4)
RESULT, MEAN, SCRATCH = T(5, 6, 0, 10, 4), T(7, 8, 0, 1, 4), T(9, 10, 0, 100, 4)
ROWS, SCALED, PADDED = T(11, 21, 0, 14, 4), T(12, 22, 0, 14, 4), T(13, 23, 0, 20, 4)
NESTED = Typed([14, 0, 0, 0, 0, ""], "Tensor(float)", [], [])


def executed(folder: Path, *nodes: object) -> list[list[int]]:
    """Return the ids of the calls that are executed for each operation."""
    program = program_of(folder, *nodes)
    return [[call.node.id for call in operation.calls] for operation in program.operations]


def test_a_composite_whose_parts_are_needed_later_is_executed_by_its_parts(tmp_path: Path) -> None:
    assert executed(
        tmp_path,
        operator(10, "ns::norm", inputs=[GIVEN], outputs=[RESULT]),
        operator(11, "ns::native_norm", 10, inputs=[GIVEN], outputs=[RESULT, MEAN]),
        operator(20, "ns::norm_backward", inputs=[GIVEN, MEAN]),
    ) == [[11], [20]]


def test_a_kernel_that_fills_what_it_allocates_is_executed_as_such(tmp_path: Path) -> None:
    """Its scratch memory seems to be needed later, as something unseen got the same address."""
    turned = T(12, 6, 0, 10, 4)
    assert executed(
        tmp_path,
        operator(10, "ns::kernel", inputs=[GIVEN], outputs=[turned]),
        operator(11, "aten::zeros", 10, outputs=[RESULT]),
        operator(12, "aten::empty", 10, outputs=[SCRATCH]),
        operator(13, "aten::transpose", 10, inputs=[RESULT], outputs=[turned]),
        operator(20, "aten::add", inputs=[turned, SCRATCH]),
    ) == [[10], [20]]


def test_a_kernel_that_copies_what_it_has_filled_is_executed_as_such(tmp_path: Path) -> None:
    assert executed(
        tmp_path,
        operator(10, "ns::kernel", inputs=[GIVEN], outputs=[RESULT]),
        operator(11, "aten::empty_like", 10, inputs=[GIVEN], outputs=[SCRATCH]),
        operator(12, "aten::to", 10, inputs=[SCRATCH], outputs=[RESULT]),
        operator(20, "aten::add", inputs=[RESULT, SCRATCH]),
    ) == [[10], [20]]


def test_a_composite_that_copies_what_it_is_given_is_executed_by_its_parts(tmp_path: Path) -> None:
    copied = T(12, 13, 0, 10, 4)
    assert executed(
        tmp_path,
        operator(10, "ns::composite", inputs=[GIVEN], outputs=[RESULT]),
        operator(11, "aten::to", 10, inputs=[GIVEN], outputs=[copied]),
        operator(12, "aten::relu", 10, inputs=[copied], outputs=[RESULT]),
        operator(20, "aten::add", inputs=[RESULT, copied]),
    ) == [[11, 12], [20]]


WRAPPED = T(30, 40, 0, 64, 4)
"""Of a tensor subclass, in the storage of the null pointer."""
WEIGHT, STATE = T(31, 41, 0, 32, 4), T(32, 42, 0, 32, 4)


def test_what_a_subclass_holds_was_there_before_the_operator_on_it(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::to", inputs=[WRAPPED], outputs=[WRAPPED]),
        operator(5, "aten::mul_", inputs=[WRAPPED, 2]),
        node(6, "PythonSubclass", 5, [WRAPPED, 2]),
        operator(7, "aten::mul_", 6, inputs=[WEIGHT, 2]),
        operator(9, "aten::add_", inputs=[WRAPPED, WRAPPED]),
        node(10, "PythonSubclass", 9, [WRAPPED, WRAPPED]),
        operator(11, "aten::add_", 10, inputs=[WEIGHT, STATE]),
    )

    assert [operation.node.id for operation in program.operations] == [7, 11]
    assert [(s.storage_id, s.kind.value, s.size) for s in program.storages] == [
        (41, "input", 128),
        (42, "input", 128),
    ]


def test_what_is_wrapped_until_it_is_waited_for_takes_no_memory(tmp_path: Path) -> None:
    total, root = T(33, 43, 0, 32, 4), T(34, 44, 0, 32, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::linalg_vector_norm", inputs=[WRAPPED], outputs=[WRAPPED]),
        node(4, "PythonSubclass", 3, [WRAPPED]),
        operator(5, "_c10d_functional::all_reduce", 4, inputs=[WEIGHT], outputs=[total]),
        operator(6, "_c10d_functional::_wrap_tensor_autograd", 4, [total], [WRAPPED]),
        operator(7, "aten::sqrt", 4, inputs=[WRAPPED], outputs=[root]),
        node(8, "PythonSubclass", 7, [WRAPPED]),
        operator(9, "_c10d_functional::wait_tensor", 8, inputs=[total], outputs=[total]),
        operator(10, "aten::sqrt", 8, inputs=[total], outputs=[root]),
    )

    assert [operation.node.id for operation in program.operations] == [5, 9, 10]
    assert [(s.storage_id, s.size) for s in program.storages] == [(41, 128), (43, 128), (44, 128)]


def test_of_a_tensor_subclass_run_the_calls_that_python_makes(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::mul", inputs=[NESTED, 2], outputs=[NESTED]),
        node(4, "PythonSubclass", 3, [NESTED, 2]),
        operator(5, "aten::mul", 4, inputs=[ROWS, 2], outputs=[SCALED]),
        operator(6, "aten::composite", inputs=[NESTED], outputs=[PADDED]),
        operator(7, "aten::to_padded", 6, inputs=[NESTED], outputs=[PADDED]),
        node(8, "PythonSubclass", 7, [NESTED]),
        operator(9, "aten::pad", 8, inputs=[SCALED], outputs=[PADDED]),
        operator(10, "aten::wrap", inputs=[PADDED], outputs=[NESTED]),
        node(15, "PythonSubclass", 10, [PADDED]),
        operator(16, "aten::relu", inputs=[PADDED], outputs=[T(17, 24, 0, 20, 4)]),
    )

    calls = [[call.node.id for call in operation.calls] for operation in program.operations]
    assert calls == [[5], [9], [16]]
