"""Stand-ins for kernels of other devices compute the same, in the recorded form."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from replay.recorded_calls import UNDEFINED, call, integers, made_up, run, tensor

from et_replay.execution_trace import Node, Opaque, TensorRef, Value
from et_replay.replay.equivalents import equivalent, executable
from et_replay.replay.operators import Unresolvable, resolve

META = torch.device("meta")
CONVOLUTION = (
    "aten::cudnn_convolution(Tensor self, Tensor weight, SymInt[] padding, SymInt[] stride,"
    " SymInt[] dilation, SymInt groups, bool benchmark, bool deterministic, bool allow_tf32)"
    " -> Tensor"
)
BATCH_NORM = (
    "aten::cudnn_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor? running_mean,"
    " Tensor? running_var, bool training, float exponential_average_factor, float epsilon)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
EFFICIENT = (
    "aten::_scaled_dot_product_efficient_attention(Tensor query, Tensor key, Tensor value, Tensor?"
    " attn_bias, bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, *, float?"
    " scale=None) -> (Tensor output, Tensor log_sumexp, Tensor philox_seed, Tensor philox_offset)"
)
EFFICIENT_BACKWARD = (
    "aten::_scaled_dot_product_efficient_attention_backward(Tensor grad_out_, Tensor query, Tensor"
    " key, Tensor value, Tensor attn_bias, Tensor out, Tensor logsumexp, Tensor philox_seed, Tensor"
    " philox_offset, float dropout_p, bool[4] grad_input_mask, bool is_causal=False, *, float?"
    " scale=None) -> (Tensor, Tensor, Tensor, Tensor)"
)
FLASH = (
    "aten::_flash_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q,"
    " Tensor? cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, bool"
    " return_debug_mask) -> (Tensor output, Tensor softmax_logsumexp, Tensor rng_state, Tensor"
    " unused, Tensor debug_attn_mask)"
)
HEADS = tensor(2, 4, 6, 8, device="cuda:0")


def forms(result: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]] | None]:
    return [None if each is None else (tuple(each.shape), each.stride()) for each in result]


def test_a_cudnn_convolution_runs_in_the_recorded_layout() -> None:
    channels_last = (96, 1, 24, 4)
    output = tensor(2, 4, 4, 6, strides=channels_last)
    node = call(
        CONVOLUTION, tensor(2, 3, 4, 6), tensor(4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1,
        False, False, True, outputs=[output],
    )  # fmt: skip

    result = run(node)

    expected = torch.conv2d(*filled(node), padding=1)
    assert result.stride() == channels_last
    torch.testing.assert_close(result, expected)


def filled(node: Node) -> list[torch.Tensor]:
    """Make the tensors that `run` makes up for a node whose tensors come first."""
    references = [value for value in node.inputs if isinstance(value, TensorRef)]
    made = [
        made_up(each, torch.device("cpu"), None, index) for index, each in enumerate(references)
    ]
    return [each for each in made if each is not None]


def test_a_cudnn_batch_norm_runs_with_a_reserve_of_recorded_size() -> None:
    vector = tensor(3)
    outputs = [tensor(2, 3, 4, 4), vector, vector, tensor(100, dtype="unsigned char", itemsize=1)]
    node = call(BATCH_NORM, tensor(2, 3, 4, 4), *[vector] * 4, True, 0.1, 1e-5, outputs=outputs)

    result = run(node)

    assert [tuple(each.shape) for each in result] == [(2, 3, 4, 4), (3,), (3,), (100,)]
    assert result[3].dtype is torch.uint8


@pytest.mark.parametrize("causal", [False, True])
def test_efficient_attention_computes_attention(causal: bool) -> None:
    transposed = tensor(2, 4, 6, 8, strides=(192, 8, 32, 1))
    seed = integers()
    outputs = [transposed, tensor(2, 4, 32), seed, seed]
    node = call(EFFICIENT, HEADS, HEADS, HEADS, None, True, 0.0, causal, None, outputs=outputs)

    result = run(node)

    expected = torch.nn.functional.scaled_dot_product_attention(*filled(node), is_causal=causal)
    torch.testing.assert_close(result[0], expected)
    assert forms(result)[0] == ((2, 4, 6, 8), (192, 8, 32, 1))
    assert forms(result)[1:] == [((2, 4, 32), (128, 32, 1)), ((), ()), ((), ())]


def test_the_backward_of_attention_is_its_derivative() -> None:
    seed = integers()
    node = call(
        EFFICIENT_BACKWARD, HEADS, HEADS, HEADS, HEADS, UNDEFINED, HEADS, tensor(2, 4, 32), seed,
        seed, 0.0, (True, True, True, False), True, None, outputs=[HEADS, HEADS, HEADS, UNDEFINED],
    )  # fmt: skip

    result = run(node)

    slope, *factors = (each.requires_grad_() for each in filled(node)[:4])
    forward = torch.nn.functional.scaled_dot_product_attention(*factors, is_causal=True)
    expected = torch.autograd.grad(forward, factors, slope)
    for found, one in zip(result, expected, strict=False):
        torch.testing.assert_close(found, one)
    assert result[3] is None


def test_flash_attention_takes_rows_before_heads_and_fewer_keys() -> None:
    rows, keys = tensor(2, 6, 4, 8), tensor(2, 6, 2, 8)
    outputs = [rows, tensor(2, 4, 6), integers(2), integers(), tensor(0)]
    node = call(FLASH, rows, keys, keys, None, None, 6, 6, 0.0, True, False, outputs=outputs)

    result = run(node)

    query, key, value = (each.transpose(1, 2) for each in filled(node))
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(result[0], expected.transpose(1, 2))


def test_packed_attention_keeps_its_form() -> None:
    packed, offsets = tensor(12, 4, 8), integers(3)
    outputs = [packed, tensor(4, 12), integers(2), integers(), tensor(0)]
    node = call(
        FLASH, packed, packed, packed, offsets, offsets, 6, 6, 0.0, False, False, outputs=outputs
    )

    assert tuple(run(node)[0].shape) == (12, 4, 8)


RNN = (
    "Tensor hx, Tensor? cx, int mode, SymInt hidden_size, SymInt proj_size, int num_layers,"
    " bool batch_first, float dropout, bool train, bool bidirectional, SymInt[] batch_sizes,"
    " Tensor? dropout_state"
)
RNN_FORWARD = (
    "aten::_cudnn_rnn(Tensor input, Tensor[] weight, int weight_stride0, Tensor? weight_buf,"
    f" {RNN}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def test_a_cudnn_lstm_runs() -> None:
    weights = (tensor(20, 3), tensor(20, 5), tensor(20), tensor(20))
    state, buffer = tensor(1, 2, 5), tensor(200)
    node = call(
        RNN_FORWARD, tensor(7, 2, 3), weights, 4, buffer, state, state, 2, 5, 0, 1,
        False, 0.0, True, False, (), None, outputs=[tensor(7, 2, 5), state, state, buffer, buffer],
    )  # fmt: skip

    assert [tuple(each.shape) for each in run(node)] == [
        (7, 2, 5), (1, 2, 5), (1, 2, 5), (200,), (200,)
    ]  # fmt: skip


def test_a_cudnn_lstm_has_a_backward() -> None:
    schema = (
        "aten::_cudnn_rnn_backward(Tensor input, Tensor[] weight, int weight_stride0, Tensor"
        " weight_buf, Tensor hx, Tensor? cx, Tensor output, Tensor? grad_output, Tensor? grad_hy,"
        " Tensor? grad_cy, int mode, SymInt hidden_size, SymInt proj_size, int num_layers, bool"
        " batch_first, float dropout, bool train, bool bidirectional, SymInt[] batch_sizes, Tensor?"
        " dropout_state, Tensor reserve, bool[4] output_mask) -> (Tensor, Tensor, Tensor, Tensor[])"
    )
    weights = (tensor(20, 3), tensor(20, 5), tensor(20), tensor(20))
    state, source, output = tensor(1, 2, 5), tensor(7, 2, 3), tensor(7, 2, 5)
    node = call(
        schema, source, weights, 4, tensor(200), state, state, output, output, UNDEFINED, UNDEFINED,
        2, 5, 0, 1, False, 0.0, True, False, (), None, tensor(200), (True,) * 4,
        outputs=[source, state, state, weights],
    )  # fmt: skip

    slopes = run(node)

    assert [tuple(each.shape) for each in slopes[:3]] == [(7, 2, 3), (1, 2, 5), (1, 2, 5)]
    assert [tuple(each.shape) for each in slopes[3]] == [(20, 3), (20, 5), (20,), (20,)]


def test_where_torch_has_a_kernel_it_is_called() -> None:
    node = call("aten::relu(Tensor self) -> Tensor", tensor(2))

    assert equivalent(resolve(node), "cpu", node) is None
    assert executable(resolve(node), "cpu", node)(torch.tensor([-1.0])).tolist() == [0]


def test_where_there_is_neither_the_device_is_named() -> None:
    node = call(
        "aten::_cudnn_init_dropout_state(float dropout, bool train, int dropout_seed) -> Tensor",
        0.1,
        True,
        1,
    )

    with pytest.raises(Unresolvable, match="torch has no kernel for cpu"):
        executable(resolve(node), "cpu", node)


@pytest.mark.parametrize(
    ("schema", "inputs", "outputs"),
    [
        ("aten::nonzero(Tensor self) -> Tensor", [tensor(4)], [integers(3, 1)]),
        ("aten::nonzero_numpy(Tensor self) -> Tensor[]", [tensor(4)], [(integers(3),)]),
        (
            CONVOLUTION,
            [HEADS, tensor(4, 4, 1, 1), (0, 0), (1, 1), (1, 1), 1, False, False, True],
            [HEADS],
        ),
    ],
)
def test_on_meta_results_have_the_recorded_shapes(
    schema: str, inputs: list[Value], outputs: list[Value]
) -> None:
    result = run(call(schema, *inputs, outputs=outputs), META)

    recorded = outputs[0][0] if isinstance(outputs[0], tuple) else outputs[0]
    found = result[0] if isinstance(result, list) else result
    assert found.is_meta
    assert isinstance(recorded, TensorRef)
    assert (tuple(found.shape), found.stride()) == (recorded.shape, recorded.strides)


def test_on_meta_an_item_is_what_was_recorded() -> None:
    node = call("aten::item(Tensor self) -> Scalar", tensor(), outputs=[0.5])

    assert run(node, META) == 0.5


def test_on_meta_in_place_operators_without_kernel_return_their_argument() -> None:
    schema = "aten::_resize_output_(Tensor(a!) self, SymInt[] size, Device device) -> Tensor(a!)"
    node = call(schema, tensor(4), (4,), "cuda:0", outputs=[tensor(4)])
    given = torch.empty(4, device="meta")

    assert executable(resolve(node), "meta", node)(given, [4], META) is given


def test_a_mask_of_other_values_takes_the_recorded_number_of_rows() -> None:
    schema = (
        "aten::_index_put_impl_(Tensor(a!) self, Tensor?[] indices, Tensor values,"
        " bool accumulate=False, bool unsafe=False) -> Tensor(a!)"
    )
    mask = tensor(10, dtype="bool", itemsize=1)
    node = call(schema, tensor(10, 3), (mask,), tensor(4, 3), False, False, outputs=[tensor(10, 3)])

    assert tuple(run(node).shape) == (10, 3)


def test_waiting_for_a_stream_does_nothing() -> None:
    node = call("aten::record_stream(Tensor(a!) self, Stream s) -> ()", tensor(2), Opaque("Stream"))

    assert run(node) is None


def test_a_bag_returns_what_its_backward_pass_takes() -> None:
    schema = (
        "aten::embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets,"
        " bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights,"
        " bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)"
    )
    outputs = [tensor(2, 4), integers(5), integers(2), integers(2)]
    node = call(
        schema, tensor(6, 4), integers(5), integers(2), False, 0, False, None, False, 3,
        outputs=outputs,
    )  # fmt: skip

    assert [tuple(result.shape) for result in run(node)] == [(2, 4), (5,), (2,), (2,)]


def test_a_bag_without_a_backward_pass_is_torchs_own() -> None:
    schema = (
        "aten::embedding_bag(Tensor weight, Tensor indices, Tensor offsets,"
        " bool scale_grad_by_freq=False, int mode=0, bool sparse=False,"
        " Tensor? per_sample_weights=None, bool include_last_offset=False)"
        " -> (Tensor, Tensor, Tensor, Tensor)"
    )
    inputs = (tensor(6, 4), integers(5), integers(2), False, 0, False, None, False)
    node = call(schema, *inputs, outputs=[tensor(2, 4), integers(0), integers(2), integers(2)])

    assert equivalent(resolve(node), "cpu", node) is None


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch lacks oneDNN")
@pytest.mark.parametrize("kept", [True, False])
def test_a_recurrent_layer_keeps_its_workspace_where_the_job_did(kept: bool) -> None:
    workspace = tensor(28672, dtype="unsigned char", itemsize=1) if kept else UNDEFINED
    node = call(
        str(torch.ops.aten.mkldnn_rnn_layer.default._schema),
        tensor(5, 2, 3), tensor(16, 3), tensor(16, 4), tensor(16), tensor(16), tensor(2, 4),
        tensor(2, 4), False, (), 2, 4, 1, True, False, False, True,
        outputs=[tensor(5, 2, 4), tensor(2, 4), tensor(2, 4), workspace],
    )  # fmt: skip

    *_, found = run(node)

    assert (found is not None and found.numel() > 0) is kept
