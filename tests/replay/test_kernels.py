"""Generated kernels launch with what was recorded, from their sources, and only where allowed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import floats, integers
from torch._inductor.runtime import hints, triton_heuristics
from trace_builder import NodeSpec, node

from et_replay.errors import ReplayError
from et_replay.execution_trace import Node, Opaque, TensorRef, Value
from et_replay.program import Mode
from et_replay.replay import kernels
from et_replay.replay.kernels import KernelLoader, Launch
from et_replay.replay.operators import Unresolvable
from et_replay.replay.prepare import Preparer
from et_replay.replay.result import Outcome
from et_replay.replay.target import Target

NAME, FILE = "triton_poi_fused_mul_0", "cq5.py"
GPU = torch.device("cuda", 0)
STREAM = 140382148398488
IN, OUT = (TensorRef(number, number, 0, 4, 4, "cuda:0", "float", (4,), (1,)) for number in (11, 12))
# What torch writes, but for the kernel: it computes in * n + s, s being the number of its stream.
SOURCE = """
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

class Kernel(CachingAutotuner):
    def __init__(self):
        self.triton_meta = {"device": 3, "device_type": "hip", "signature": {}}
        self.launchers = []

    def precompile(self):
        assert self.triton_meta == {"device": 0, "device_type": "cuda", "signature": {}}
        self.launchers = [lambda in_ptr0, out_ptr0, xnumel, stream: None]

    def run(self, in_ptr0, out_ptr0, xnumel, *, stream):
        out_ptr0.copy_(in_ptr0 * xnumel + stream)

triton_poi_fused_mul_0 = Kernel()
"""


@pytest.fixture(autouse=True)
def a_gpu_of_stream_7(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch believe that there is a GPU, and keep its own cache out of the way."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 7, raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    found = SimpleNamespace(index=0, type="cuda")
    monkeypatch.setattr(hints.DeviceProperties, "create", lambda _: found)


def folder_with(tmp_path: Path, source: str, name: str = FILE) -> Path:
    folder = tmp_path / "trace_resources"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(source)
    return folder


def launch(tmp_path: Path, *inputs: Value, file: str = FILE, **others: Any) -> Launch:
    """Make the launch of a kernel that a trace in `tmp_path` recorded with these inputs."""
    options = {"device": GPU, "run_kernels": True, **others}
    loader = KernelLoader(str(tmp_path / "trace.json"), **options)
    recorded = Node(5, NAME, 2, inputs, kernel_backend="triton", kernel_file=file)
    return loader.launch(recorded)


def refusal(tmp_path: Path, *inputs: Value, **others: Any) -> str:
    with pytest.raises(Unresolvable) as caught:
        launch(tmp_path, *inputs, **others)
    return caught.value.reason


@pytest.mark.parametrize("tail", [[STREAM], ["grid(4,)", STREAM], ["grid(4,)", 0], [0]])
def test_a_launch_drops_the_recorded_stream_and_grid_and_passes_the_rest_in_order(
    tmp_path: Path, tail: list[Value]
) -> None:
    folder_with(tmp_path, SOURCE)
    result = torch.empty(4)

    made = launch(tmp_path, IN, OUT, 10, *tail)
    made.function(torch.tensor([1.0, 2.0, 3.0, 4.0]), result, 10)

    assert made.arguments == (IN, OUT, 10)
    assert result.tolist() == [17.0, 27.0, 37.0, 47.0]


def test_where_torch_launches_over_a_grid_the_recorded_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = SOURCE.replace("*, stream", "*, grid, stream").replace("+ stream", "+ grid[0]")
    folder_with(tmp_path, taking)
    monkeypatch.setattr(triton_heuristics, "grid", lambda *sizes: sizes, raising=False)
    result = torch.empty(4)

    launch(tmp_path, IN, OUT, 10, "grid(8,)", 0).function(torch.zeros(4), result, 10)

    assert result.tolist() == [8.0, 8.0, 8.0, 8.0]
    assert refusal(tmp_path, IN, OUT, 10, 0) == (
        f"torch {torch.__version__} launches its kernel over a grid, which the trace lacks"
    )


def test_a_source_that_is_not_there_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    what = "a generated triton kernel, whose source"
    assert refusal(tmp_path, IN) == (
        f"{what} cq5.py is not in {trace}_resources or {tmp_path}/trace_resources"
    )

    folder = folder_with(tmp_path, SOURCE, "another.py")

    assert refusal(tmp_path, IN) == f"{what} cq5.py is not in {folder}"
    assert refusal(tmp_path, IN, file="") == f"{what} of no name is not in {folder}"
    long = "x" * 8000 + ".py"
    assert refusal(tmp_path, IN, file=long) == f"{what} {long} is not in {folder}"


def test_a_trace_names_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, SOURCE, "inside.py")
    (tmp_path / "outside.py").write_text("raise AssertionError")

    made = launch(tmp_path, IN, OUT, 4, 0, file="/tmp/torchinductor_somebody/in/inside.py")

    assert made.arguments == (IN, OUT, 4)
    assert refusal(tmp_path, IN, file="../outside.py") == (
        f"a generated triton kernel, whose source outside.py is not in {folder}"
    )


def test_without_the_flag_no_code_runs_and_the_reason_names_the_flag(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    folder = folder_with(tmp_path, f"open({str(ran)!r}, 'w').close()\n{SOURCE}")

    assert refusal(tmp_path, IN, OUT, 4, 0, run_kernels=False) == (
        f"a generated triton kernel; --run-kernels runs its code from {folder}"
    )
    assert not ran.exists()
    launch(tmp_path, IN, OUT, 4, 0)
    assert ran.exists()


def test_only_a_gpu_launches(tmp_path: Path) -> None:
    folder_with(tmp_path, SOURCE)

    reason = refusal(tmp_path, IN, OUT, 4, 0, device=torch.device("cpu"))

    assert reason == "a generated triton kernel, which cannot run on cpu"


def test_another_count_of_arguments_than_the_kernel_takes_is_refused(tmp_path: Path) -> None:
    folder_with(tmp_path, SOURCE)

    assert refusal(tmp_path, IN, OUT, 0) == (
        "its kernel cq5.py takes 3 arguments, and 2 were recorded"
    )


def test_an_argument_that_the_observer_could_not_record_is_refused(tmp_path: Path) -> None:
    folder_with(tmp_path, SOURCE)

    reason = refusal(tmp_path, IN, OUT, Opaque("Object"), 0)

    assert reason == "an argument of its kernel was not recorded"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        ("def (", "RuntimeError: Failed to import "),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("", "ImportError: it holds 0 kernels, none of them triton_poi_fused_mul_0"),
        (SOURCE.replace("assert ", "assert not "), "AssertionError"),
    ],
)
def test_a_source_that_does_not_load_is_a_reason_in_one_line(
    tmp_path: Path, source: str, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder_with(tmp_path, source)

    reason = refusal(tmp_path, IN, OUT, 4, 0)

    assert reason.startswith("its kernel cq5.py does not load here: ")
    assert complaint in reason
    assert "\n" not in reason
    assert capfd.readouterr() == ("", "")


def test_a_kernel_with_a_choice_of_configurations_makes_it_before_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = SOURCE.replace("stream: None]", "stream: None] * 2")
    ran = tmp_path / "ran"
    folder_with(
        tmp_path,
        two.replace(
            "        out_ptr0.copy_", f"        open({str(ran)!r}, 'a').write('x'); out_ptr0.copy_"
        ),
    )
    monkeypatch.setattr(
        kernels, "_stand_in", lambda value, _: value if value == 4 else torch.ones(4)
    )
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)

    launch(tmp_path, IN, OUT, 4, 0)

    assert ran.read_text() == "x"


def recorded_kernel(id: int = 10) -> NodeSpec:
    arguments = [floats(11, 4), floats(12, 4), 10, 0]
    return node(id, NAME, inputs=arguments, kernel_backend="triton", kernel_file=FILE)


def test_a_prepared_kernel_takes_its_tensors_from_slots_and_counts_as_executed(
    tmp_path: Path,
) -> None:
    folder_with(tmp_path, SOURCE)
    program = program_of(tmp_path, recorded_kernel())

    preparer = Preparer(program, Target(GPU, "cuda"), "substitute", run_kernels=True)
    prepared = preparer.prepare(Mode.PRE_ALLOCATE)

    (operation,), ((call,),) = prepared.operations, [each.calls for each in prepared.operations]
    slots = [torch.ones(4), torch.empty(4), *prepared.contents.constants, None]
    assert call.run(slots) is None
    assert slots[1].tolist() == [17.0, 17.0, 17.0, 17.0]
    assert (operation.outcome, operation.reasons) == (Outcome.EXECUTED, [])
    assert (call.inputs, call.outputs, call.plain) == ((0, 1), (), True)


TEXT = """
    inductor_meta={'kernel_name': 'triton_poi_fused_mul_0', 'mutated_arg_names': []},
def triton_poi_fused_mul_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0 + (x1), None)
    tl.device_assert((0 <= tmp0) & (tmp0 < 512), "index out of bounds: 0 <= tmp0 < 512")
    tl.store(out_ptr0 + (x2), tmp0, None)
"""


def test_what_a_kernel_only_writes_gets_no_values_and_what_it_indexes_with_valid_ones(
    tmp_path: Path,
) -> None:
    folder_with(tmp_path, f'{SOURCE}\n"""{TEXT}"""')
    arguments = [integers(11, 4), floats(12, 4), 10, 0]
    program = program_of(
        tmp_path, node(10, NAME, inputs=arguments, kernel_backend="triton", kernel_file=FILE)
    )

    preparer = Preparer(program, Target(GPU, "cuda"), "substitute", run_kernels=True)
    prepared = preparer.prepare(Mode.PRE_ALLOCATE)

    (call,) = prepared.operations[0].calls
    assert call.overwritten == {1}
    assert [(slot, each.low, each.high) for slot, each in call.bounds] == [(0, 0, 511)]
    assert call.enforced == ()
    assert prepared.permanent == (0,)


def test_an_index_that_a_kernel_changes_is_clamped_in_every_iteration(tmp_path: Path) -> None:
    changing = TEXT + "    tl.store(in_ptr0 + (x2), tmp0, None)\n"
    folder_with(tmp_path, f'{SOURCE}\n"""{changing}"""')
    arguments = [integers(11, 4), floats(12, 4), 10, 0]
    program = program_of(
        tmp_path, node(10, NAME, inputs=arguments, kernel_backend="triton", kernel_file=FILE)
    )

    preparer = Preparer(program, Target(GPU, "cuda"), "substitute", run_kernels=True)
    prepared = preparer.prepare(Mode.PRE_ALLOCATE)

    (call,) = prepared.operations[0].calls
    assert [(slot, each.low, each.high) for slot, each in call.enforced] == [(0, 0, 511)]


def test_fail_stops_at_a_kernel_that_may_not_run(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, SOURCE)
    program = program_of(tmp_path, recorded_kernel())

    with pytest.raises(ReplayError) as caught:
        Preparer(program, Target(GPU, "cuda"), "fail", run_kernels=False).prepare(Mode.PRE_ALLOCATE)

    assert str(caught.value) == (
        f"Cannot replay node 10 ({NAME}): a generated triton kernel; --run-kernels runs its code"
        f" from {folder}; --on-unsupported substitute goes on without it."
    )
