"""Storages that no operator gives out, and labels: who they belong to, and when they begin."""

from __future__ import annotations

from pathlib import Path

from program.programs import lives, program_of
from trace_builder import NodeSpec, T, Typed, mark, node, operator

OTHER = T(40, 41, 0, 10, 4)


def test_a_tensor_in_another_storage_without_a_node_began_there(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::ones", outputs=[T(5, 6, 0, 1000, 4)]),
        operator(4, "aten::mul_", inputs=[T(5, 9, 0, 1000, 4)], outputs=[T(5, 9, 0, 1000, 4)]),
    )

    assert lives(program) == [(6, "produced", 4000, 3), (9, "implicit", 4000, 4)]
    assert {each.storage_id: each.operation for each in program.storages} == {6: 0, 9: 1}


def test_storages_first_seen_at_a_generated_kernel_began_there(tmp_path: Path) -> None:
    given = T(10, 11, 0, 16, 4)
    fresh = [T(12, 13, 0, 16, 4), T(14, 15, 0, 16, 4)]
    program = program_of(
        tmp_path,
        operator(3, "aten::mm.out", inputs=[given, given, given], outputs=[given]),
        node(4, "triton_poi_fused_0", inputs=[given, *fresh, 16, 0], kernel_backend="triton"),
    )

    assert lives(program) == [
        (11, "input", 64, 4),
        (13, "implicit", 64, 4),
        (15, "implicit", 64, 4),
    ]


KERNEL = """
    inductor_meta={'mutated_arg_names': ['in_out_ptr0']},
def triton_poi_fused_0(in_ptr0, in_out_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.load(in_out_ptr0 + (x0), xmask)
    tl.store(in_out_ptr0 + (x0), tmp0 + tmp1, xmask)
    tl.store(out_ptr0 + (x0), tmp0, xmask)
"""


def kernel(id: int, *inputs: Typed, parent: int = 2) -> NodeSpec:
    """Return a launch of KERNEL: it reads, reads and writes, and only writes its tensors."""
    name, file = "triton_poi_fused_0", "cq5.py"
    arguments = [*inputs, 16, 0]
    return node(id, name, parent, arguments, kernel_backend="triton", kernel_file=file)


def save_source(folder: Path) -> None:
    (folder / "trace_resources").mkdir()
    (folder / "trace_resources" / "cq5.py").write_text(KERNEL)


def test_the_source_of_a_kernel_tells_what_it_reads_from_what_was_made_for_it(
    tmp_path: Path,
) -> None:
    save_source(tmp_path)
    read, both, made = (T(n, n + 1, 0, 16, 4) for n in (10, 12, 14))
    steps = (mark(3, "ProfilerStep#1"), kernel(4, read, both, made, parent=3))
    again = (mark(5, "ProfilerStep#2"), kernel(6, read, both, T(16, 15, 0, 16, 4), parent=5))

    program = program_of(tmp_path, *steps, *again)

    assert lives(program) == [(11, "input", 64, 6), (13, "input", 64, 6), (15, "implicit", 64, 6)]
    assert [storage.blank for storage in program.storages] == [False, False, True]


def test_another_tensor_that_is_overwritten_at_the_same_address_is_another_storage(
    tmp_path: Path,
) -> None:
    save_source(tmp_path)
    read, both = (T(n, n + 1, 0, 16, 4) for n in (10, 12))
    first, again, other = T(14, 15, 0, 16, 4), T(14, 15, 0, 16, 4), T(18, 15, 0, 64, 4)

    program = program_of(
        tmp_path,
        *(kernel(4 + i, read, both, made) for i, made in enumerate((first, again, other))),
    )

    assert [life for life in lives(program) if life[0] == 15] == [
        (15, "implicit", 64, 5),
        (15, "implicit", 256, 6),
    ]


def test_kernels_that_fill_a_storage_part_by_part_fill_one(tmp_path: Path) -> None:
    save_source(tmp_path)
    read, both = (T(n, n + 1, 0, 16, 4) for n in (10, 12))
    back, front = T(14, 15, 16, 16, 4), T(16, 15, 0, 16, 4)
    whole = T(18, 15, 0, 32, 4)

    program = program_of(
        tmp_path,
        kernel(4, read, both, back),
        kernel(5, read, both, front),
        operator(6, "aten::relu", inputs=[whole]),
    )

    assert [life for life in lives(program) if life[0] == 15] == [(15, "implicit", 128, 6)]


def test_what_a_kernel_reads_and_writes_by_two_arguments_was_there_before(tmp_path: Path) -> None:
    save_source(tmp_path)
    weight, both = (T(n, n + 1, 0, 16, 4) for n in (10, 12))

    program = program_of(tmp_path, kernel(4, weight, both, weight))

    assert lives(program) == [(11, "input", 64, 4), (13, "input", 64, 4)]


def test_a_compiled_graph_allocates_what_its_operators_put_out(tmp_path: Path) -> None:
    schema = "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)"
    given, made, buffer = (T(n, n + 1, 0, 16, 4) for n in (10, 12, 14))

    program = program_of(
        tmp_path,
        mark(3, "## Call CompiledFxGraph fx5 ##"),
        operator(4, "aten::mm", 3, [given, given, made], [made], schema=schema),
        operator(5, "aten::mm", 2, [given, made, buffer], [buffer], schema=schema),
    )

    assert lives(program) == [(11, "input", 64, 5), (13, "implicit", 64, 5), (15, "input", 64, 5)]


def test_a_call_in_a_compiled_graph_without_the_result_that_its_schema_names_makes_nothing(
    tmp_path: Path,
) -> None:
    schema = "aten::rand.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)"
    graph = mark(3, "## Call CompiledFxGraph fx5 ##")

    program = program_of(tmp_path, graph, operator(4, "aten::rand", 3, [16], schema=schema))

    assert lives(program) == []


def test_a_generated_kernel_may_read_what_an_earlier_step_knew(tmp_path: Path) -> None:
    weight, fresh = T(10, 11, 0, 16, 4), T(12, 13, 0, 16, 4)
    program = program_of(
        tmp_path,
        mark(3, "ProfilerStep#1"),
        operator(4, "aten::relu", 3, inputs=[weight]),
        mark(5, "ProfilerStep#2"),
        node(6, "triton_poi_fused_0", 5, inputs=[weight, fresh], kernel_backend="triton"),
    )

    assert lives(program) == [(11, "input", 64, 6), (13, "implicit", 64, 6)]


def test_what_a_kernel_gives_a_child_without_being_given_it_is_its_own(tmp_path: Path) -> None:
    tensor, scratch = T(5, 6, 0, 10, 4), T(7, 8, 0, 250, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::add_", inputs=[tensor, 1.0], outputs=[tensor]),
        operator(4, "aten::add_", 3, inputs=[tensor, scratch], outputs=[tensor]),
    )

    assert lives(program) == [(6, "input", 40, 4), (8, "implicit", 1000, 4)]
    by_id = {each.storage_id: each for each in program.storages}
    assert (by_id[8].operation, by_id[8].temporary) == (0, True)


def test_scratch_at_a_known_address_is_a_new_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        operator(4, "ns::kernel", inputs=[OTHER]),
        operator(7, "aten::fill_", 4, inputs=[T(9, 6, 0, 20, 4)], outputs=[T(9, 6, 0, 20, 4)]),
        operator(8, "aten::relu", inputs=[OTHER]),
    )

    assert lives(program) == [
        (6, "implicit", 80, 7),
        (6, "produced", 40, 3),
        (41, "input", 40, 8),
    ]


def test_scratch_of_two_kernels_at_one_address_is_two_storages(tmp_path: Path) -> None:
    scratch = T(9, 6, 0, 20, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        operator(4, "ns::kernel", inputs=[OTHER]),
        operator(7, "aten::fill_", 4, inputs=[scratch], outputs=[scratch]),
        operator(8, "ns::kernel", inputs=[OTHER]),
        operator(10, "aten::fill_", 8, inputs=[scratch], outputs=[scratch]),
    )

    assert lives(program) == [
        (6, "implicit", 80, 7),
        (6, "implicit", 80, 10),
        (6, "produced", 40, 3),
        (41, "input", 40, 8),
    ]


def test_scratch_followed_by_a_new_storage_is_not_state(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        operator(4, "ns::kernel", inputs=[OTHER]),
        operator(7, "aten::sum", 4, inputs=[T(9, 6, 0, 20, 4)]),
        operator(8, "aten::empty", outputs=[T(5, 6, 0, 30, 4)]),
        operator(10, "aten::sum", inputs=[T(5, 6, 0, 30, 4)]),
    )

    assert lives(program) == [
        (6, "implicit", 80, 7),
        (6, "produced", 40, 3),
        (6, "produced", 120, 10),
        (41, "input", 40, 4),
    ]


def test_state_that_a_kernel_holds_stays_one_storage(tmp_path: Path) -> None:
    state = T(5, 6, 0, 10, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[state]),
        operator(4, "ns::kernel", inputs=[OTHER]),
        operator(7, "aten::mul", 4, inputs=[OTHER, state]),
        operator(8, "ns::kernel", inputs=[OTHER]),
        operator(9, "aten::mul", 8, inputs=[OTHER, state]),
        operator(10, "aten::sum", inputs=[state]),
    )

    assert lives(program) == [(6, "produced", 40, 10), (41, "input", 40, 9)]


def test_a_kernel_result_filled_by_a_child_is_one_new_storage(tmp_path: Path) -> None:
    old, new = T(5, 6, 0, 10, 4), T(7, 6, 0, 20, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[old]),
        operator(4, "aten::sum", inputs=[old]),
        operator(8, "aten::div", inputs=[OTHER], outputs=[new]),
        operator(9, "aten::div", 8, inputs=[OTHER, 2, new], outputs=[new]),
        operator(10, "aten::sum", inputs=[new]),
    )

    found = [(storage_id, size, last) for storage_id, _, size, last in lives(program)]
    assert sorted(found) == [(6, 40, 4), (6, 80, 10), (41, 40, 9)]


def test_labels_start_no_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        node(3, "CompiledFunction", inputs=[T(5, 6, 0, 10, 4)], outputs=[T(7, 8, 0, 10, 4)]),
        operator(4, "aten::relu", inputs=[OTHER]),
    )

    assert lives(program) == [(41, "input", 40, 4)]


def test_a_label_before_the_first_use_leaves_it_an_input(tmp_path: Path) -> None:
    tensor = T(5, 6, 0, 10, 4)
    program = program_of(
        tmp_path,
        node(3, "MulBackward0", inputs=[tensor]),
        operator(4, "aten::mul", 3, inputs=[tensor]),
    )

    assert lives(program) == [(6, "input", 40, 4)]


def test_a_label_does_not_join_two_generations(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        node(4, "torch::autograd::AccumulateGrad", inputs=[T(5, 6, 0, 10, 4)]),
        operator(7, "aten::empty", outputs=[T(5, 6, 0, 20, 4)]),
    )

    assert lives(program) == [(6, "produced", 40, 4), (6, "produced", 80, 7)]
