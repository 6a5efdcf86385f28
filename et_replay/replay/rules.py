"""What values the inputs of an operator must have: one table of rules by operator and argument."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from torch._ops import OpOverload

from et_replay.execution_trace import Node, tensors
from et_replay.replay import bounds as by
from et_replay.replay.arguments import recorded_arguments
from et_replay.replay.bounds import Arguments, Bounder
from et_replay.replay.operators import base_name
from et_replay.replay.requirement import Requirement


class Rule(NamedTuple):
    """`operators` matches a whole name after its namespace, `argument` a whole argument name."""

    operators: str
    argument: str
    bound: Bounder


_BAG = "_?embedding_bag(_forward_only)?"
_BAG_BACKWARD = "_embedding_bag(_sparse|_dense|_per_sample_weights)?_backward"
_CTC = "_?(cudnn_)?ctc_loss(_backward)?"
_LOSSES = "nll_loss(2d)?(_nd)?(_forward|_backward)?|cross_entropy_loss"
_NORMS = "_?.*(batch|layer|group|instance|rms)_norm.*"
_VARIANCES = "running_var|save_invstd|save_var(_transform)?|invstd|rstd"
_ATTENTION = "_(flash|cudnn)_attention_(forward|backward)"
_EFFICIENT = "_efficient_attention_(forward|backward)"

RULES: tuple[Rule, ...] = (
    Rule("embedding", "indices", by.indexes("weight", 0)),
    Rule("embedding_renorm_", "indices", by.indexes("self", 0)),
    Rule("embedding(_dense|_sparse)?_backward", "indices", by.below_argument("num_weights")),
    Rule(f"{_BAG}|_embedding_bag_per_sample_weights_backward", "indices", by.indexes("weight", 0)),
    Rule("_embedding_bag(_sparse|_dense)?_backward", "indices", by.below_argument("num_weights")),
    Rule(f"{_BAG}|{_BAG_BACKWARD}", "offsets", by.bags),
    Rule(_BAG_BACKWARD, "offset2bag", by.bag_numbers),
    Rule(_BAG_BACKWARD, "bag_size", by.likely(1, 1)),
    Rule("_?(unsafe_)?index(_put(_impl)?)?_?", "indices", by.indexes_each),
    Rule("index_(select|add|copy|fill|reduce)_?", "index", by.indexes_dim),
    Rule("index_select_backward", "index", by.indexes_dim_of("self_sizes")),
    Rule("gather(_backward)?|scatter(_add|_reduce)?_?", "index", by.indexes_dim),
    Rule("take_along_dim", "indices", by.indexes_dim),
    Rule("value_selecting_reduction_backward", "indices", by.indexes_dim_of("sizes")),
    Rule("take|put_?", "index", by.indexes_flat("self")),
    Rule("(true_|floor_)?div(ide)?_?|floor_divide_?|fmod_?|remainder_?", "other", by.divisor),
    Rule(_LOSSES, "target", by.classes),
    Rule("multi(label)?_margin_loss(_forward|_backward)?", "target", by.indexes("self", -1)),
    Rule(_CTC, "targets", by.blanked_classes),
    Rule(_CTC, "input_lengths", by.equals("log_probs", 0)),
    Rule(_CTC, "target_lengths", by.target_lengths),
    Rule("one_hot", "self", by.result_classes),
    Rule("bincount", "self", by.result_rows),
    Rule(".*max_pool[12]d(_with_indices)?_backward", "indices", by.indexes_flat("self", 2)),
    Rule(".*max_pool3d(_with_indices)?_backward", "indices", by.indexes_flat("self", 3)),
    Rule("max_unpool[23]d", "indices", by.result_plane),
    Rule("repeat_interleave", "repeats", by.repeats),
    Rule("searchsorted", "sorted_sequence", by.rising(0, 1)),
    Rule("searchsorted", "sorter", by.order("sorted_sequence")),
    Rule("masked_select", "mask", by.places_for_result),
    Rule("masked_scatter_?", "mask", by.places_for_source),
    Rule("argwhere|nonzero(_numpy)?", "self", by.true_for_each_row),
    Rule("where", "condition", by.true_for_each_row_if_alone),
    Rule("multinomial", "self", by.positive),
    Rule("bernoulli", "self", by.within(0, 1)),
    Rule("bernoulli_?", "p", by.within(0, 1)),
    Rule("binary_cross_entropy(_backward)?", "self|target", by.within(0, 1)),
    Rule("binomial", "prob", by.within(0, 1)),
    Rule(_NORMS, _VARIANCES, by.likely(0.5, 1.5)),
    Rule("_fused_.*", "state_steps", by.likely(1, 100)),
    Rule("lu_unpack|lu_solve", "LU_pivots", by.up_to("LU_data", -2)),
    Rule("cholesky", "self", by.positive_definite("self")),
    Rule("linalg_cholesky(_ex)?", "self", by.positive_definite("self")),
    Rule("linalg_ldl_solve", "pivots", by.up_to("LD", -1)),
    Rule("linalg_lu_solve", "pivots", by.up_to("LU", -1)),
    Rule("cov", "fweights", by.likely(1, 4)),
    Rule("tensor_split", "tensor_indices_or_sections", by.sections),
    Rule("segment_reduce", "lengths", by.segments),
    Rule("_pack_padded_sequence", "lengths", by.sequence_lengths),
    Rule("_pad_packed_sequence|lstm|gru|rnn_(tanh|relu)", "batch_sizes", by.batch_sizes),
    Rule(_ATTENTION, "cum_seq_q", by.boundaries("query", 0)),
    Rule(_ATTENTION, "cum_seq_k", by.boundaries("key", 0)),
    Rule(_EFFICIENT, "cu_seqlens_q", by.boundaries("query", 1)),
    Rule(_EFFICIENT, "cu_seqlens_k", by.boundaries("key", 1)),
    Rule("_jagged_to_padded_dense_forward", "offsets", by.boundaries("values", 0)),
    Rule("_(scaled_)?grouped_mm", "offs", by.group_ends),
)


@cache
def _rules(name: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if re.fullmatch(rule.operators, name))


def requirements(node: Node, overload: OpOverload) -> dict[int, Requirement]:
    """Return what input tensors of `node` must hold, by flat index; others may hold anything.

    A recorded range counts as far as the rules allow it: observers have written absurd ones.
    """
    found = dict(_ruled(node, overload))
    for index, recorded in recorded_ranges(node):
        found[index] = recorded & found.get(index)
    return found


def _ruled(node: Node, overload: OpOverload) -> Iterator[tuple[int, Requirement]]:
    rules = _rules(base_name(overload).partition("::")[2])
    if not rules:
        return
    recorded = list(recorded_arguments(overload, node))
    values = {argument.parameter.name: argument.value for argument in recorded}
    call = Arguments(values, list(tensors(node.outputs)))
    for argument in recorded:
        count = sum(1 for _ in tensors((argument.value,)))
        for rule in rules if count else ():
            if re.fullmatch(rule.argument, argument.parameter.name):
                bound = rule.bound(call)
                each = bound if isinstance(bound, list) else [bound] * count
                for place, one in enumerate(each, argument.first):
                    if one is not None:
                        yield place, one


def recorded_ranges(node: Node) -> Iterator[tuple[int, Requirement]]:
    try:
        ranges = json.loads(node.tensor_range or "{}")
    except ValueError:
        return
    known = list(tensors(node.inputs))
    for key, bounds in ranges.items() if isinstance(ranges, dict) else ():
        if key.isdecimal() and int(key) < len(known) and _is_range(bounds):
            yield int(key), Requirement(likely=(bounds[0], bounds[1]))


def _is_range(bounds: object) -> bool:
    return (
        isinstance(bounds, list)
        and len(bounds) == 2
        and all(isinstance(bound, int) for bound in bounds)
        and -(2**63) <= bounds[0] <= bounds[1] < 2**64
    )
