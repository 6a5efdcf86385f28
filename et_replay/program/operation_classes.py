"""The name of an operator in, the class of work that it does out: what times are added up by."""

from __future__ import annotations

import enum
import re
from functools import cache

from et_replay.execution_trace import Node


class OperationClass(enum.Enum):
    """What an operation does; the values are what people read."""

    MATRIX_PRODUCT = "matrix product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    NORMALIZATION = "normalization"
    ACTIVATION = "activation"
    SOFTMAX_AND_LOSS = "softmax and loss"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"
    COPY_AND_LAYOUT = "copy and layout"
    """Copies, fills and views, though these take no time on the device."""
    INDEXING_AND_EMBEDDING = "indexing and embedding"
    """What goes where values say: sorting and resampling too."""
    OPTIMIZER = "optimizer"
    RANDOM = "random"
    GENERATED_KERNEL = "generated kernel"
    COLLECTIVE = "collective"
    OTHER = "other"


_CLASSES = (
    (OperationClass.OPTIMIZER, "foreach_.*|fused_(sgd|adam|adamw|adagrad)|amp_.*"),
    (OperationClass.ATTENTION, ".*attention.*|.*flash_attn.*"),
    (OperationClass.CONVOLUTION, r".*conv(olution|_|\d).*"),
    (
        OperationClass.NORMALIZATION,
        ".*(batch|layer|group|instance|rms|weight|response)_norm.*|renorm",
    ),
    (OperationClass.SOFTMAX_AND_LOSS, ".*softmax.*|.*loss.*|.*cross_entropy.*|.*kl_div.*"),
    (
        OperationClass.INDEXING_AND_EMBEDDING,
        "(unsafe_|cudnn_)?(embedding|index|gather|scatter|take|masked|put|searchsorted|bucketize"
        r"|nonzero|one_hot|isin|sort|argsort|msort|topk|kthvalue|unique\d?|bincount|histc"
        "|segment_reduce|upsample|grid_sampler?|value_selecting_reduction)(_.*)?",
    ),
    (
        OperationClass.MATRIX_PRODUCT,
        "(.*_)?(mm|bmm|addmm|addbmm|baddbmm|matmul|mv|addmv|linear|bilinear|trilinear|dot|vdot"
        "|inner|outer|ger|addr|kron|einsum|tensordot)(_.*)?",
    ),
    (
        OperationClass.ACTIVATION,
        "(relu6?|leaky_relu|prelu|rrelu|gelu|silu|mish|elu|celu|selu|glu|hardtanh|hardswish"
        "|hardsigmoid|hardshrink|softplus|softshrink|softsign|threshold|sigmoid|log_sigmoid"
        "|tanh|tanhshrink)(_.*)?",
    ),
    (
        OperationClass.RANDOM,
        "(rand|randn|randint|randperm|random|bernoulli|multinomial|normal|uniform|exponential"
        "|geometric|cauchy|log_normal|poisson|binomial|standard_gamma|dirichlet|philox"
        "|(native_|fused_|feature_|alpha_)*dropout)(_.*)?",
    ),
    (
        OperationClass.REDUCTION,
        "(sum|nansum|mean|nanmean|prod|amax|amin|aminmax|max|min|argmax|argmin|any|all|std|var"
        "|norm|linalg_norm|linalg_vector_norm|logsumexp|logcumsumexp|cumsum|cumprod|cummax|cummin"
        r"|median|nanmedian|mode|count_nonzero|trace|(.*_)?pool\d?d?)(_.*)?|.*pool\dd.*",
    ),
    (
        OperationClass.COPY_AND_LAYOUT,
        "(unsafe_)?(copy|clone|to|type_as|contiguous|cat|concat|concatenate|stack|[hvd]stack"
        "|split|[hvd]split|tensor_split|chunk|unbind|view|reshape|flatten|unflatten|ravel|t"
        "|transpose|permute|swapaxes|swapdims|movedim|moveaxis|numpy_T|mT|mH|adjoint|expand"
        "|broadcast|squeeze|unsqueeze|select|slice|narrow|diagonal|diag|unfold|as_strided|alias"
        "|detach|lift|repeat|tile|roll|flip|fliplr|flipud|rot90|pad|constant_pad|reflection_pad.*"
        "|replication_pad.*|circular_pad|pin_memory|resize|set|empty|new|zeros|ones|full|fill|zero"
        "|arange|linspace|scalar_tensor|eye|meshgrid|item|local_scalar_dense|real|imag|conj"
        "|resolve_conj|resolve_neg|pixel_shuffle|pixel_unshuffle|column_stack|diagflat|im2col"
        "|col2im)(_.*)?",
    ),
    (
        OperationClass.ELEMENTWISE,
        "(add|sub|subtract|rsub|mul|multiply|div|divide|true_divide|floor_divide|remainder|fmod"
        "|pow|square|sqrt|rsqrt|exp|exp2|expm1|log|log2|log10|log1p|abs|neg|negative|sign|sgn|sin"
        "|cos|tan|asin|acos|atan|atan2|sinh|cosh|erf|erfc|erfinv|ceil|floor|round|trunc|frac|clamp"
        "|clip|maximum|minimum|fmax|fmin|where|lerp|addcmul|addcdiv|eq|ne|lt|le|gt|ge|less"
        "|greater|not_equal|logical|bitwise|and|or|xor|lshift|rshift|isnan|isinf|isfinite"
        "|reciprocal|nan_to_num|tril|triu|hypot|logaddexp2?|logit|heaviside|xlogy|polar|complex"
        "|angle|ilshift|irshift|iand|ior|ixor|sinc|deg2rad|rad2deg|absolute|arc.*|asinh|acosh|atanh"
        "|copysign|float_power|fake_quantize.*|quantize.*|dequantize)(_.*)?",
    ),
)
"""Of each class the names that belong to it; the first that matches counts.

A name is meant without its namespace and without underscores at its ends: `add` is `aten::add_`.
"""


def class_of(node: Node) -> OperationClass:
    """Tell what kind of work `node` records."""
    if node.is_collective:
        return OperationClass.COLLECTIVE
    if node.is_kernel:
        return OperationClass.GENERATED_KERNEL
    return class_of_name(node.name)


@cache
def class_of_name(name: str) -> OperationClass:
    """Tell what kind of work the operator `name` does."""
    plain = name.rpartition("::")[2].strip("_")
    for found, pattern in _CLASSES:
        if re.fullmatch(pattern, plain):
            return found
    return OperationClass.OTHER
