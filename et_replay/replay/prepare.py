"""A program and a target in, operations resolved, bound and placed in slots out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from et_replay.execution_trace import TensorRef, damaged, tensors
from et_replay.program.program import Call, Operation, Program
from et_replay.program.schedule import Mode
from et_replay.replay.arguments import BoundCall, bind
from et_replay.replay.configuration import Skip, reason_to_skip
from et_replay.replay.contents import Contents
from et_replay.replay.copied_values import pass_back
from et_replay.replay.drift import steady_storages
from et_replay.replay.dtypes import is_stood_for_by_bytes
from et_replay.replay.equivalents import executable
from et_replay.replay.kernels import KernelLoader
from et_replay.replay.operators import (
    Unresolvable,
    full_name,
    has_kernel,
    is_data_dependent,
    recorded_name,
    resolve,
)
from et_replay.replay.prepared import (
    PreparedCall,
    PreparedOperation,
    Slots,
    fetcher,
    stand_in,
    unsupported,
)
from et_replay.replay.requirement import Requirement
from et_replay.replay.result import Outcome
from et_replay.replay.rules import recorded_ranges, requirements
from et_replay.replay.slot_lifetimes import assign_clearing, permanent_slots
from et_replay.replay.target import Target
from et_replay.replay.uninitialised import storages_filled_unseen

if TYPE_CHECKING:
    from et_replay.replay.communication.communicator import Communicator

Bounds = tuple[tuple[int, Requirement], ...]

_TOUCH_FILES = frozenset({"aten::from_file", "aten::save", "aten::load"})
"""Traces come from strangers: a replay leaves the file system alone."""
_NOT_IN_COMP = "a collective, which only replay modes comm and full make"


@dataclass(frozen=True)
class Prepared:
    """Operations in order, what their slots hold, and the slots that outlive iterations."""

    operations: list[PreparedOperation]
    contents: Contents
    permanent: tuple[int, ...]


class Preparer:
    """Prepares the operations of one program for one target."""

    def __init__(
        self,
        program: Program,
        target: Target,
        on_unsupported: str,
        run_kernels: bool,
        skips: Sequence[Skip] = (),
        communicator: Communicator | None = None,
    ) -> None:
        self._program = program
        self._communicator = communicator
        self._target = target
        self._on_unsupported = on_unsupported
        self._skips = skips
        self._filled_unseen = storages_filled_unseen(program)
        self._steady = steady_storages(program)
        self._contents = Contents(program)
        self._kernels = KernelLoader(program.trace.source, target.device, run_kernels)

    def prepare(self, mode: Mode) -> Prepared:
        """Prepare all operations; raises ReplayError for one that cannot run, by policy."""
        operations = [self._operation(operation) for operation in self._program.operations]
        if self._communicator is not None:
            self._communicator.add_waits(operations)
        pass_back(self._program, self._contents.requirements)
        keep = mode is Mode.PRE_ALLOCATE
        permanent = permanent_slots(self._program, operations) if keep else set()
        assign_clearing(self._program, operations, permanent)
        return Prepared(operations, self._contents, tuple(sorted(permanent)))

    def _operation(self, operation: Operation) -> PreparedOperation:
        node = operation.node
        prepared = PreparedOperation(node.id, node.name, [])
        skipped = reason_to_skip(node, self._skips)
        if skipped is not None:
            prepared.configured = True
            prepared.degrade(Outcome.SKIPPED, skipped)
            prepared.calls.append(stand_in((*operation.call.inputs, *operation.call.outputs)))
        elif node.is_collective and self._communicator is None:
            self._give_up(prepared, operation.call, _NOT_IN_COMP)
        else:
            self._add_calls(prepared, operation)
        return prepared

    def _give_up(self, prepared: PreparedOperation, call: Call, reason: str) -> None:
        prepared.calls.append(
            unsupported(prepared, call.inputs, call.outputs, reason, self._on_unsupported)
        )

    def _add_calls(self, prepared: PreparedOperation, operation: Operation) -> None:
        if operation.calls != (operation.call,):
            self._add_demands(operation.call)
        for call in operation.calls:
            try:
                prepared.calls.append(self._call(prepared, call))
            except Unresolvable as error:
                if operation.calls != (operation.call,) and self._can_run_whole(operation):
                    prepared.calls = [self._call(prepared, operation.call)]
                    return
                self._give_up(prepared, call, str(error))

    def _add_demands(self, call: Call) -> None:
        """Note what a call demands of its inputs, though those below it run in its place."""
        with contextlib.suppress(Unresolvable):
            self._contents.add_call(call, requirements(call.node, resolve(call.node)))

    def _can_run_whole(self, operation: Operation) -> bool:
        try:
            self._call(PreparedOperation(0, "", []), operation.call)
        except Unresolvable:
            return False
        return True

    def _call(self, prepared: PreparedOperation, call: Call) -> PreparedCall:
        if call.node.is_kernel:
            return self._launch(call)
        if call.node.is_collective and self._communicator is not None:
            return self._communicator.prepare(call)
        made = self._program.storages_of(call.outputs) - self._program.storages_of(call.inputs)
        if made & self._filled_unseen:
            reason = "the job filled its memory unseen; it gets valid values"
            prepared.degrade(Outcome.EXECUTED, reason)
            return stand_in(call.outputs)
        overload = resolve(call.node)
        kind = self._kind(call)
        _refuse_unplayable(call, kind)
        recorded, found = recorded_name(call.node), full_name(overload)
        if recorded not in ("", found):
            reason = f"torch has no operator {recorded}; {found} ran"
            prepared.degrade(Outcome.EXECUTED, reason)
        conforms = is_data_dependent(overload, call.node)
        if kind == "meta" and (conforms or _returns_only_scalars(call)):
            raise Unresolvable("its result depends on data, and meta tensors have none")
        has_one = has_kernel(overload, kind)
        if kind == "meta" and not has_one:
            raise Unresolvable("torch computes no shapes for it")
        bound = bind(overload, call.node, self._target.place)
        bound.function = executable(overload, kind, call.node)
        if not has_one:
            reason = f"torch has no kernel for {kind}; an equivalent ran"
            prepared.degrade(Outcome.EXECUTED, reason)
        for note in bound.notes:
            prepared.degrade(Outcome.EXECUTED, note)
        needed = requirements(call.node, overload)
        self._contents.add_call(call, needed)
        return self._placed(call, bound, needed, conforms)

    def _launch(self, call: Call) -> PreparedCall:
        """Prepare the launch of a generated kernel: what it returns, it writes into arguments."""
        launch = self._kernels.launch(call.node)
        needed = dict(recorded_ranges(call.node))
        places, flat = [], 0
        for place, value in enumerate(launch.arguments):
            if not isinstance(value, TensorRef):
                places.append(self._contents.add_constant(value))
                continue
            if place in launch.index_limits:
                valid = Requirement(0, launch.index_limits[place] - 1)
                needed[flat] = valid & needed.get(flat)
            places.append(call.inputs[flat])
            flat += 1
        self._contents.add_call(call, needed)
        taken = tuple(dict.fromkeys(slot for slot in call.inputs if slot >= 0))
        bounds = self._bounds(call, needed)
        return PreparedCall(
            launch.function,
            fetcher(tuple(places)),
            inputs=taken,
            outputs=(),
            bounds=bounds,
            enforced=self._enforced(bounds),
            overwritten=self._overwritten(call),
        )

    def _placed(
        self, call: Call, bound: BoundCall, needed: dict[int, Requirement], conforms: bool
    ) -> PreparedCall:
        """Turn the flat indices of a bound call into slots, and its constants as well."""
        slot = call.inputs
        storages = tuple((position, call.outputs[flat]) for position, flat in bound.storages)
        bounds = self._bounds(call, needed)
        taken = (*slot, *(place for _, place in storages))
        return PreparedCall(
            function=bound.function,
            fetch=fetcher(self._positional(bound, slot)),
            inputs=tuple(dict.fromkeys(t for t in taken if t >= 0)),
            outputs=tuple(-1 if t in slot else t for t in call.outputs),
            kwargs=bound.kwargs,
            lists=tuple((position, _lister(slot, flats)) for position, flats in bound.lists),
            storages=storages,
            keyword_singles=tuple((name, slot[flat]) for name, flat in bound.keyword_singles),
            keyword_lists=tuple(
                (name, _lister(slot, flats)) for name, flats in bound.keyword_lists
            ),
            recorded=tuple(tensors(call.node.outputs)),
            fresh=self._program.storages_of(call.outputs).isdisjoint(
                self._program.storages_of(call.inputs)
            ),
            conforms=conforms,
            bounds=bounds,
            enforced=self._enforced(bounds),
            overwritten=self._overwritten(call),
            made_from=(call, bound),
        )

    def _bounds(self, call: Call, needed: dict[int, Requirement]) -> Bounds:
        slot = call.inputs
        return tuple(
            (slot[flat], requirement)
            for flat, requirement in needed.items()
            if slot[flat] >= 0 and (requirement.is_bounded or requirement.total is not None)
        )

    def _enforced(self, bounds: Bounds) -> Bounds:
        """Pick those of `bounds` whose tensors may come to have other values than at first."""
        return tuple(
            (place, requirement)
            for place, requirement in bounds
            if requirement.is_bounded
            if self._program.tensors[place].storage not in self._steady
        )

    def _overwritten(self, call: Call) -> frozenset[int]:
        """List the slots that `call` is given only to write its results into."""
        storages = self._program.storages
        storage_of = {
            slot: self._program.tensors[slot].storage for slot in call.inputs if slot >= 0
        }
        return frozenset(
            slot
            for slot, storage in storage_of.items()
            if storages[storage].blank and storages[storage].born_node_id == call.node.id
        )

    def _positional(self, bound: BoundCall, slot: tuple[int, ...]) -> tuple[int, ...]:
        """List the slot of every positional argument; constants lie behind the tensors."""
        places = {position: slot[flat] for position, flat in bound.singles}
        filled_later = {position for position, _ in (*bound.lists, *bound.storages)}
        for position, value in enumerate(bound.args):
            if position in filled_later or (position not in places and value is None):
                places[position] = -1
            elif position not in places:
                places[position] = self._contents.add_constant(value)
        return tuple(places[position] for position in range(len(bound.args)))

    def _kind(self, call: Call) -> str:
        """Tell the kind of device that runs the call: the host for a call on host tensors alone."""
        kinds = {
            self._target.place(ref.device).type
            for ref in tensors((*call.node.inputs, *call.node.outputs))
            if ref.defined and ref.device
        }
        kind = self._target.device.type
        return next(iter(kinds)) if kinds and kind not in kinds else kind


def _refuse_unplayable(call: Call, kind: str) -> None:
    """Raise Unresolvable for what must not, or cannot, run in the form that was recorded."""
    node = call.node
    # without one of the outputs, the results cannot be told from each other
    if any(damaged(node.outputs)) and (call.outputs or kind == "meta"):
        raise Unresolvable("its recorded output is damaged")
    if node.name in _TOUCH_FILES:
        raise Unresolvable("it reads or writes files, and those of the job are not here")
    for ref in tensors((*node.inputs, *node.outputs)):
        if ref.defined and is_stood_for_by_bytes(ref.dtype, kind):
            raise Unresolvable(f"tensors of type {ref.dtype} cannot be made from a trace")


def _lister(slot: tuple[int, ...], flats: Iterable[int]) -> Callable[[Slots], Sequence[Any]]:
    return fetcher(tuple(slot[flat] if flat >= 0 else -1 for flat in flats))


def _returns_only_scalars(call: Call) -> bool:
    return bool(call.node.outputs) and not call.outputs and bool(call.inputs)
