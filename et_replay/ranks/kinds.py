"""The name of a node or of a backend's record in, the function of torch.distributed out."""

from __future__ import annotations

from et_replay.program.communication import RECORD, WAIT

SEND, RECEIVE = "send", "recv"
TO_ALL = frozenset({"all_to_all", "all_to_all_single"})
BARRIERS = frozenset({"barrier", "monitored_barrier"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_KINDS = {  # without underscores: c10d::_allgather_base_ and the record _allgather_base are one
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce_coalesced",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather_into_tensor",
    "allgatherintotensor": "all_gather_into_tensor",
    "allgatherintotensorout": "all_gather_into_tensor",
    "allgathercoalesced": "all_gather_coalesced",
    "allgatherintotensorcoalesced": "all_gather_into_tensor_coalesced",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter_tensor",
    "reducescattertensor": "reduce_scatter_tensor",
    "reducescattertensorout": "reduce_scatter_tensor",
    "reducescattertensorcoalesced": "reduce_scatter_tensor_coalesced",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all_single",
    "alltoallsingle": "all_to_all_single",
    "alltoallv": "all_to_all_single",
    "sharddimalltoall": "all_to_all_single",
    "gather": "gather",
    "scatter": "scatter",
    "send": SEND,
    "isend": SEND,
    "recv": RECEIVE,
    "irecv": RECEIVE,
    "recvanysource": RECEIVE,
    "barrier": "barrier",
    "monitoredbarrier": "monitored_barrier",
    "wait": WAIT,
    "waittensor": WAIT,
}
LISTS = {
    "all_gather": (False, True),
    "reduce_scatter": (True, False),
    "all_to_all": (True, True),
    "gather": (False, True),
    "scatter": (True, False),
}
"""Kinds of which what is given, or taken, is a list of a tensor for each rank."""
WHOLES = {
    "all_gather_into_tensor": (False, True),
    "all_gather_into_tensor_coalesced": (False, True),
    "reduce_scatter_tensor": (True, False),
    "reduce_scatter_tensor_coalesced": (True, False),
    "all_to_all_single": (True, True),
}
"""Kinds of which each tensor that is given, or taken, holds equal parts for all ranks."""
SIDES = {**LISTS, **WHOLES, "all_gather_coalesced": (False, True)}
"""Kinds of which what is given, or taken, has a part for each rank."""
_FORMS = ("_dtensor", "c10d_functional", "_c10d_functional_autograd", "_c10d_functional", "c10d")
_FAMILIES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def kind_of(name: str) -> str:
    """Return the kind of what is called `name`, "" where it is no call to other ranks."""
    return _KINDS.get(name.rpartition("::")[2].replace("_", "").lower(), "")


def depth_of(name: str) -> int:
    """Tell which form of a call a node has: the higher, the further down; -1 where it is none."""
    if name == RECORD:
        return len(_FORMS)
    space, separator, _ = name.partition("::")
    return _FORMS.index(space) if separator and space in _FORMS else -1


def family_of(kind: str) -> str:
    """Return what kinds have in common that one call can have in its different forms."""
    return next((family for family in _FAMILIES if kind.startswith(family)), kind)


def has_lists(kind: str) -> bool:
    """Tell whether a call of the kind takes or gives a list of tensors."""
    return kind in LISTS or kind.endswith("_coalesced")
