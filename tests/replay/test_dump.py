"""Dumps: files that replay with nothing but torch, the same calls on the same values."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import call, floats, held, integers
from trace_builder import NodeSpec, T, mark, node, operator

from et_replay.errors import UsageError
from et_replay.execution_trace import tensors
from et_replay.formats import open_trace
from et_replay.program import Mode, Program, build_program, select_window
from et_replay.replay.configuration import Skip
from et_replay.replay.dump import dump
from et_replay.replay.options import ReplayOptions

TRACES = Path(__file__).resolve().parents[2] / "traces"
ALONE = """
import json, runpy, sys
assert not any("et_replay" in path for path in sys.path)
file = runpy.run_path(sys.argv.pop(1))
given = file["inputs"]()
results = file["iteration"](given)
print(json.dumps([[list(t.shape), list(t.stride()), t.flatten()[:20].tolist()] for t in results]))
"""


def text_of(program: Program, mode: Mode = Mode.PRE_ALLOCATE, **options: Any) -> str:
    return dump(program, ReplayOptions(mode, "cpu", **options))[0]


def results_of(folder: Path, text: str) -> Any:
    """Run a dump where only torch can be imported; return shape, strides and first values."""
    file = folder / "dumped_replay.py"
    file.write_text(text)
    words = [sys.executable, "-I", "-c", ALONE, str(file)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def layer() -> Sequence[NodeSpec]:
    """Return indices looked up in a table, and a view of the result that is written to."""
    table, index, found = floats(11, 10, 4), integers(12, 6), floats(13, 6, 4)
    row = T(14, 13, 4, 4, 4, shape=(4,))
    return [
        call(10, "embedding", [table, index, -1, False, False], [found]),
        call(11, "select.int", [found, 0, 1], [row]),
        call(12, "mul_.Scalar", [row, 2.0], [row]),
        call(13, "add.Tensor", [found, found, 1], [floats(15, 6, 4)]),
    ]


@pytest.mark.parametrize("mode", [Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE])
def test_a_dump_computes_what_the_replay_computes(tmp_path: Path, mode: Mode) -> None:
    weights = floats(21, 3, 4)
    nodes = [
        *layer(),
        call(14, "mm", [weights, T(22, 22, 0, 12, 4, shape=(4, 3))], [floats(23, 3, 3)]),
    ]
    nodes += [call(15, "mul_.Scalar", [weights, 3.0], [weights])]
    program = program_of(tmp_path, *nodes, call(16, "relu", [weights], [floats(24, 3, 4)]))

    ((shape, strides, values),) = results_of(tmp_path, text_of(program, mode, seed=7))

    assert (shape, strides) == ([3, 4], [4, 1])
    replayed = held(program, Mode.PRE_ALLOCATE, seed=7)
    ((expected),) = [
        slot
        for slot in replayed._store.slots
        if isinstance(slot, torch.Tensor) and tuple(slot.shape) == (3, 4)
    ]
    assert values == expected.flatten().tolist()


def test_a_dump_reads_as_the_calls_that_it_makes(tmp_path: Path) -> None:
    after = call(14, "relu", [floats(15, 6, 4)], [floats(16, 6, 4)])

    text = text_of(program_of(tmp_path, *layer(), after))

    body = text[text.index("def iteration") :].partition("\n\n\n")[0]
    assert [line.strip() for line in body.splitlines()[2:]] == [
        "torch.manual_seed(0)",
        "[t0, t1] = given",
        "t2 = torch.ops.aten.embedding.default(t0, t1)  # node 10",
        "t3 = torch.ops.aten.select.int(t2, 0, 1)  # node 11",
        "torch.ops.aten.mul_.Scalar(t3, 2.0)  # node 12",
        "t4 = torch.ops.aten.add.Tensor(t2, t2)  # node 13",
        "del t2, t3",
        "t5 = torch.ops.aten.relu.default(t4)  # node 14",
        "return [t5]",
    ]
    assert "t1 = integers(6, torch.int64, 0, 9, seed=1)" in text
    assert "def uniform(" in text
    assert "def shaped(" not in text  # only what is called


def test_values_of_a_dump_are_valid_indices(tmp_path: Path) -> None:
    table, index = floats(11, 5, 4), integers(12, 1000)
    nodes = [call(10, "embedding", [table, index, -1, False, False], [floats(13, 1000, 4)])]

    ((shape, _, _),) = results_of(tmp_path, text_of(program_of(tmp_path, *nodes)))

    assert shape == [1000, 4]


def test_a_result_whose_shape_depends_on_data_gets_the_recorded_one(tmp_path: Path) -> None:
    found = T(12, 12, 0, 3, 8, shape=(3, 1), dtype="long int")
    nodes = [call(10, "nonzero", [floats(11, 6)], [found])]

    ((shape, _, values),) = results_of(tmp_path, text_of(program_of(tmp_path, *nodes)))

    assert shape == [3, 1]
    assert all(0 <= value < 6 for value in values)


def test_computed_indices_are_held_within_their_bounds(tmp_path: Path) -> None:
    big, index, rows = integers(12, 3), integers(13, 3), floats(15, 3, 2)
    nodes = [
        call(10, "add.Scalar", [big, 1000, 1], [index]),
        call(11, "index_select", [floats(14, 6, 2), 0, index], [rows]),
    ]

    text = text_of(program_of(tmp_path, *nodes))

    assert "hold(t1, 0, 5)" in text
    assert results_of(tmp_path, text)[0][0] == [3, 2]


def test_what_cannot_be_called_is_a_comment_and_its_results_are_made_up(tmp_path: Path) -> None:
    x = floats(11, 3)
    nodes = [
        operator(10, 'nowhere::"""\n', inputs=[x], outputs=[floats(12, 3)]),
        node(11, "record_param_comms", inputs=[[x], 1], outputs=[[floats(13, 2)]]),
        call(12, "relu", [floats(12, 3)], [floats(14, 3)]),
        call(13, "neg", [x], [floats(15, 3)]),
    ]

    text = text_of(program_of(tmp_path, *nodes), skips=(Skip("aten::neg", "left out"),))

    comments = [line.strip() for line in text.splitlines() if line.startswith("    # ")]
    assert comments[0].startswith("# nowhere::'''/n, node 10: torch")
    assert comments[1:] == [
        "# record_param_comms, node 11: a collective, which only replay modes comm and full make",
        "# aten::neg, node 13: left out",
    ]
    assert results_of(tmp_path, text)[0][0] == [3]


def test_a_dump_has_the_settings_of_the_job(tmp_path: Path) -> None:
    nodes = [call(12, "relu", [floats(12, 3)], [floats(14, 3)])]
    settings = {"float32_matmul_precision": "high", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    text = text_of(program_of(tmp_path, *nodes), torch_settings=settings)
    lines = text.splitlines()
    assert "import os" in lines
    begin = lines.index("torch.set_float32_matmul_precision('high')")
    assert lines[begin - 1] == "os.environ['CUBLAS_WORKSPACE_CONFIG'] = ':16:8'"
    assert results_of(tmp_path, text)[0][0] == [3]


def test_a_name_in_a_trace_cannot_become_code(tmp_path: Path) -> None:
    name = '"""\nimport os\n"""'
    nodes = [mark(3, name), operator(10, f"x::{name}", 3, outputs=[floats(12, 3)])]

    text = text_of(program_of(tmp_path, *nodes, window=f"/{name}"))

    assert not any("os" in names.names[0].name for names in _imports(text))


def _imports(text: str) -> list[ast.Import]:
    return [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Import)]


@pytest.mark.parametrize(
    "window", ["2703:2704", "2709:2710", "2733:2734", "/Optimizer.step#AdamW.step"]
)
def test_parts_of_a_bundled_trace_give_results_of_the_recorded_shapes(
    tmp_path: Path, window: str
) -> None:
    trace = open_trace(TRACES / "transformer_cpu.json.gz")
    program = build_program(trace, select_window(trace, window))

    results = results_of(tmp_path, text_of(program))

    last = [ref for ref in tensors(program.operations[-1].node.outputs) if ref.defined]
    recorded = [(list(ref.shape), list(ref.strides or ())) for ref in last]
    assert [(shape, strides) for shape, strides, _ in results] == recorded


def test_a_dump_prints_times_and_what_one_operation_returns(tmp_path: Path) -> None:
    program = program_of(tmp_path, call(10, "relu", [floats(11, 2, 3)], [floats(12, 2, 3)]))
    file = tmp_path / "dumped_replay.py"
    file.write_text(text_of(program))

    done = subprocess.run(
        [sys.executable, "-I", str(file), "cpu"], capture_output=True, text=True, check=True
    )

    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == [f"iteration {k}" for k in range(4)]
    assert lines[4:] == ["result: torch.float32, (2, 3)"]
    assert file.read_text().startswith('"""One operation of an execution trace: aten::relu.\n')


def test_a_dump_is_not_made_for_meta(tmp_path: Path) -> None:
    program = program_of(tmp_path, call(10, "relu", [floats(11, 2)], [floats(12, 2)]))

    with pytest.raises(UsageError, match="--dump needs operators that compute"):
        dump(program, ReplayOptions(device="meta"))


def test_an_operator_may_return_hundreds_of_tensors(tmp_path: Path) -> None:
    given = [floats(1000 + k, 2) for k in range(300)]
    returned = [floats(2000 + k, 2) for k in range(300)]
    program = program_of(tmp_path, call(10, "_foreach_add.Scalar", [given, 1], [returned]))

    results = results_of(tmp_path, text_of(program))

    assert [shape for shape, _, _ in results] == [[2]] * 300
