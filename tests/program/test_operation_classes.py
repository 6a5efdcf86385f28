"""Every operator belongs to one class of work, told by its name."""

from __future__ import annotations

import pytest

from et_replay.execution_trace import Node
from et_replay.program.operation_classes import OperationClass, class_of, class_of_name


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("mm", "bmm", "addmm", "linear", "_scaled_mm", "_grouped_mm", "dot"), "matrix product"),
        (("conv2d", "convolution_backward", "cudnn_convolution"), "convolution"),
        (
            ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_backward"),
            "attention",
        ),
        (("native_layer_norm", "cudnn_batch_norm_backward", "_fused_rms_norm"), "normalization"),
        (("relu_", "gelu", "silu_backward", "threshold_backward", "sigmoid"), "activation"),
        (("_softmax", "_log_softmax_backward_data", "nll_loss_forward"), "softmax and loss"),
        (("sum", "mean", "amax", "cumsum", "max_pool2d_with_indices"), "reduction"),
        (("add_", "mul", "div", "clamp_min_", "where", "eq", "__and__", "pow"), "elementwise"),
        (
            ("copy_", "_to_copy", "cat", "t", "view", "as_strided", "zero_", "item"),
            "copy and layout",
        ),
        (
            ("index_select", "_index_put_impl_", "embedding_dense_backward", "topk", "nonzero"),
            "indexing and embedding",
        ),
        (("_foreach_add_", "_fused_adamw_", "_foreach_addcdiv_"), "optimizer"),
        (("normal_", "randint", "native_dropout", "bernoulli_"), "random"),
        (("linalg_svd", "_fft_r2c", "_cudnn_rnn"), "other"),
    ],
)
def test_a_name_tells_the_class(names: tuple[str, ...], expected: str) -> None:
    assert {class_of_name(f"aten::{name}").value for name in names} == {expected}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("upsample_bilinear2d", OperationClass.INDEXING_AND_EMBEDDING),
        ("_convert_indices_from_coo_to_csr", OperationClass.OTHER),
        ("_addmm_activation", OperationClass.MATRIX_PRODUCT),
        ("index_add_", OperationClass.INDEXING_AND_EMBEDDING),
        ("_masked_softmax", OperationClass.SOFTMAX_AND_LOSS),
        ("_batch_norm_impl_index", OperationClass.NORMALIZATION),
        ("tanh", OperationClass.ACTIVATION),
        ("tan", OperationClass.ELEMENTWISE),
    ],
)
def test_a_part_of_a_name_does_not_mislead(name: str, expected: OperationClass) -> None:
    assert class_of_name(f"aten::{name}") is expected


def test_collectives_and_generated_kernels_are_told_by_their_nodes() -> None:
    collective = Node(1, "c10d::allreduce_", 0)
    kernel = Node(2, "triton_poi_fused_add_0", 0, kernel_backend="triton")

    assert class_of(collective) is OperationClass.COLLECTIVE
    assert class_of(kernel) is OperationClass.GENERATED_KERNEL
