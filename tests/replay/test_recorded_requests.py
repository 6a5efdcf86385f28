"""RequestRecorder: whose storage each request is, from a trace that an allocator might write."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import call, floats

from et_replay.events import Action
from et_replay.origins import MemoryClass, Origin
from et_replay.program import Program
from et_replay.program.requests import BEYOND, RecordedRequests
from et_replay.replay import recorded_requests
from et_replay.replay.prepared import PreparedCall, PreparedOperation, fetcher
from et_replay.replay.recorded_requests import RequestRecorder

Entry = tuple[str, int, int, int, tuple[int, int]]
SCRATCH = 0x5000
X, Y, Z = 0, 1, 2  # the storages of the program; numbers of others begin at 4
RELU, ADD = 10, 11  # its nodes


def alloc(place: int | torch.Tensor, size: int, stream: int = 0) -> Entry:
    return ("alloc", _address(place), size, stream, (0, 0))


def free(place: int | torch.Tensor, size: int = 0) -> list[Entry]:
    """Return both lines that a free leaves."""
    address = _address(place)
    return [(action, address, size, 0, (0, 0)) for action in ("free_requested", "free_completed")]


def _address(place: int | torch.Tensor) -> int:
    return place if isinstance(place, int) else place.untyped_storage().data_ptr()


class Session:
    """A recorded replay of y = relu(x); z = y + x over 1 KiB each, whose allocator is written."""

    def __init__(self, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries: list[Entry] = []
        self.switched: list[tuple[int, bool]] = []
        fake = SimpleNamespace(
            pluggable_record_trace=lambda index, on: self.switched.append((index, on)),
            pluggable_trace_length=lambda index: len(self.entries),
            pluggable_trace=lambda index: list(self.entries),
        )
        monkeypatch.setattr(recorded_requests, "_core", fake)
        self.program = program
        self.x, self.y, self.z = (torch.zeros(256) for _ in range(3))
        self.slots: list[torch.Tensor | None] = [None] * len(program.tensors)
        self.recorder = RequestRecorder(program, 3)

    def make_input(self) -> None:
        """Make x before the first operation."""
        self.entries.append(alloc(self.x, 1024))
        slot = self.program.operations[0].call.inputs[0]
        self.slots[slot] = self.x
        self.recorder.note_tensors([slot], [self.x])

    def operate(self, k: int, result: object, during: Sequence[Entry]) -> None:
        """Run operation `k`, which gives `result` while the allocator does `during`."""
        self.recorder.begin_operation(k)
        operation = self.program.operations[k]
        tensors = operation.call.inputs, operation.call.outputs
        prepared = PreparedCall(lambda: None, fetcher(()), *tensors)

        def run(_: PreparedOperation, __: PreparedCall) -> object:
            self.entries.extend(during)
            return result

        node = operation.node
        ready = PreparedOperation(node.id, node.name, [prepared])
        assert self.recorder.running(run, self.slots)(ready, prepared) is result
        for slot in tensors[1]:
            self.slots[slot] = result if isinstance(result, torch.Tensor) else None

    def iterate(self, relu: Sequence[Entry] = (), add: Sequence[Entry] = ()) -> None:
        """Run both operations, with these requests before that of each one's result."""
        self.operate(0, self.y, [*relu, alloc(self.y, 1024)])
        self.operate(1, self.z, [*add, alloc(self.z, 1024)])
        self.entries += [*free(self.y), *free(self.z)]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    x, y, z = (floats(number, 256) for number in (1, 2, 3))
    program = program_of(
        tmp_path, call(RELU, "relu", [x], [y]), call(ADD, "add.Tensor", [y, x, 1], [z])
    )
    assert [storage.storage_id for storage in program.storages] == [1, 2, 3]
    return Session(program, monkeypatch)


def changes(requests: RecordedRequests) -> list[list[str]]:
    """Write `+storage:size` and `-storage:size`: before the steady iteration, and each step."""
    events = requests.events
    rows = [
        f"{'+' if action == Action.ALLOC else '-'}{storage}:{size}"
        for action, storage, size in zip(events.action, events.storage, events.size, strict=True)
    ]
    bounds = [0, *events.steps.tolist()]
    assert bounds[-1] == len(rows)
    return [rows[begin:end] for begin, end in pairwise(bounds)]


def test_inputs_and_results_get_the_storages_of_the_program(session: Session) -> None:
    session.make_input()
    session.iterate()
    requests = session.recorder.finish()

    assert changes(requests) == [
        [f"+{X}:1024"],
        [f"+{Y}:1024"],
        [f"+{Z}:1024", f"-{Y}:1024", f"-{Z}:1024"],
    ]
    assert requests.events.node_id.tolist() == [-1, RELU, ADD, ADD, ADD]
    assert requests.others == {}


def test_an_input_made_within_an_operation_is_that_of_the_program(session: Session) -> None:
    session.slots[session.program.operations[0].call.inputs[0]] = session.x
    session.iterate(relu=[alloc(session.x, 1024)])
    requests = session.recorder.finish()
    assert changes(requests)[1] == [f"+{X}:1024", f"+{Y}:1024"]
    assert requests.others == {}


def test_a_temporary_at_the_address_of_the_result_is_the_operators_own(session: Session) -> None:
    session.make_input()
    session.iterate(relu=[alloc(session.y, 2048), *free(session.y)])
    requests = session.recorder.finish()
    assert changes(requests)[1] == ["+4:2048", "-4:2048", f"+{Y}:1024"]
    assert requests.others == {4: Origin("aten::relu", BEYOND, MemoryClass.TEMPORARY)}


def test_a_request_that_is_kept_is_a_librarys(session: Session) -> None:
    session.make_input()
    session.iterate(add=[alloc(SCRATCH, 8192, stream=7)])
    requests = session.recorder.finish()
    assert changes(requests)[2][:2] == ["+4:8192", f"+{Z}:1024"]
    assert requests.events.stream.tolist() == [0, 0, 7, 0, 0, 0]
    assert requests.others == {4: Origin("aten::add", BEYOND, MemoryClass.LIBRARY)}


def test_what_a_later_operation_frees_was_kept(session: Session) -> None:
    session.make_input()
    session.iterate(relu=[alloc(SCRATCH, 512)], add=free(SCRATCH))
    requests = session.recorder.finish()
    assert changes(requests)[2][0] == "-4:512"
    assert requests.others[4] == Origin("aten::relu", BEYOND, MemoryClass.LIBRARY)


def test_what_is_asked_for_before_the_first_operation_has_no_operator(session: Session) -> None:
    session.entries.append(alloc(SCRATCH, 512))
    session.make_input()
    session.iterate()
    requests = session.recorder.finish()
    assert changes(requests)[0] == ["+4:512", f"+{X}:1024"]
    assert requests.others[4] == Origin("before the first operation", BEYOND, MemoryClass.LIBRARY)


def test_all_but_the_last_iteration_lies_before_its_steps(session: Session) -> None:
    session.make_input()
    session.iterate(relu=[alloc(SCRATCH, 4096)])
    session.iterate(relu=[alloc(0x9000, 512), *free(0x9000)])
    requests = session.recorder.finish()

    once = [f"+{Y}:1024", f"+{Z}:1024", f"-{Y}:1024", f"-{Z}:1024"]
    assert changes(requests) == [
        [f"+{X}:1024", "+4:4096", *once],
        ["+5:512", "-5:512", once[0]],
        once[1:],
    ]
    assert requests.events.node_id.tolist()[:3] == [-1, RELU, RELU]
    assert requests.others == {
        4: Origin("aten::relu", BEYOND, MemoryClass.LIBRARY),
        5: Origin("aten::relu", BEYOND, MemoryClass.TEMPORARY),
    }


def test_a_storage_requested_while_it_lives_gets_a_number_of_its_own(session: Session) -> None:
    """As where the result of an earlier iteration is still held."""
    session.make_input()
    session.operate(0, session.y, [alloc(session.y, 1024)])
    session.operate(1, session.z, [alloc(session.z, 1024)])
    held, session.y = session.y, torch.zeros(256)
    session.operate(0, session.y, [alloc(session.y, 1024)])
    session.operate(1, session.z, [*free(held), *free(session.y)])
    requests = session.recorder.finish()
    assert changes(requests) == [
        [f"+{X}:1024", f"+{Y}:1024", f"+{Z}:1024"],
        ["+4:1024"],
        [f"-{Y}:1024", "-4:1024"],
    ]
    assert requests.others == {4: Origin("aten::relu", BEYOND, MemoryClass.LIBRARY)}


def test_what_was_there_before_the_recording_is_not_freed_in_it(session: Session) -> None:
    session.make_input()
    session.iterate(relu=free(0x7000))
    assert changes(session.recorder.finish())[1] == [f"+{Y}:1024"]


def test_segments_and_requests_to_free_are_no_events(session: Session) -> None:
    session.make_input()
    segment: Entry = ("segment_alloc", SCRATCH, 2**21, 0, (0, 0))
    session.iterate(relu=[segment, alloc(SCRATCH, 512), free(SCRATCH)[0]])
    assert changes(session.recorder.finish())[1] == ["+4:512", f"+{Y}:1024"]


def test_a_view_and_a_list_of_results_show_their_storages(session: Session) -> None:
    session.make_input()
    session.operate(0, [session.y[128:]], [alloc(session.y, 1024)])
    session.operate(1, (None,), [])
    assert changes(session.recorder.finish())[1] == [f"+{Y}:1024"]


def test_the_allocator_of_its_device_records_until_the_end(session: Session) -> None:
    assert session.switched == [(3, True)]
    session.make_input()
    session.iterate()
    session.recorder.finish()
    assert session.switched == [(3, True), (3, False)]
