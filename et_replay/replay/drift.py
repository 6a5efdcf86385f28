"""Which storages hold the same values in every iteration, or values that are valid by nature."""

from __future__ import annotations

from et_replay.formats.kernel_text import KernelText, KernelTexts, flat_indices
from et_replay.program.program import Call, Program, StorageKind

_VALID_RESULT = {
    **dict.fromkeys(
        "arange argmax argmin argsort multinomial nonzero nonzero_numpy randint randint_like"
        " randperm sigmoid softmax".split(),
        0,
    ),
    **dict.fromkeys(
        "adaptive_max_pool2d adaptive_max_pool3d cummax cummin kthvalue max"
        " max_pool2d_with_indices max_pool3d_with_indices median min mode sort topk".split(),
        1,
    ),
}
"""Which result of an operator is valid by nature: an index of what it was given, say."""

_COPIES = frozenset(
    f"aten::{name}"
    for name in "_to_copy clone contiguous detach lift_fresh reshape to view".split()
)


def steady_storages(program: Program) -> set[int]:
    """Find the storages whose values, once found valid, are valid in every iteration.

    That is so for inputs that no call writes to, for the results of operators that return indices
    of what they were given, and for copies of either. Everything else may drift: PRE_ALLOCATE keeps
    what an iteration wrote into its inputs, a position counter say, for the next.
    """
    calls = [call for operation in program.operations for call in operation.calls]
    texts = KernelTexts(program.trace.source)
    written: set[int] = set()
    for call in calls:
        if call.node.is_kernel:
            written |= program.storages_of(_written_by_kernel(call, texts.of(call.node)))
        elif _writes(call):
            written |= program.storages_of(call.outputs) or program.storages_of(call.inputs)
    steady = {
        index
        for index, storage in enumerate(program.storages)
        if storage.kind is StorageKind.INPUT and index not in written
    }
    for call in calls:
        given = program.storages_of(call.inputs)
        made = program.storages_of(call.outputs) - given
        valid = _VALID_RESULT.get(call.node.name.removeprefix("aten::"))
        if call.node.name in _COPIES and given <= steady:
            steady |= made - written
        elif valid is not None:
            # A list of results, as nonzero_numpy returns, is valid as a whole.
            results = call.outputs[valid:] if valid == 0 else call.outputs[valid : valid + 1]
            steady |= (program.storages_of(results) & made) - written
    return steady


def _written_by_kernel(call: Call, text: KernelText | None) -> tuple[int, ...]:
    if text is None:
        return call.inputs
    return tuple(call.inputs[flat] for flat in flat_indices(call.node, text.written()))


def _writes(call: Call) -> bool:
    return call.node.name.endswith("_") or "!)" in call.node.op_schema.partition("->")[0]
