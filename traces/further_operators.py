"""Operators that torch's database lacks, or has in one form only; makes calls of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Call = Callable[[], object]
Made = Iterator[tuple[str, Call]]
_aten: Any = torch.ops.aten
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
SUB_BYTE = ("uint4", "int4", "uint1", "bits8", "float4_e2m1fn_x2")
HALVES = (torch.float16, torch.bfloat16)


def further_variants(chosen: str) -> Iterator[tuple[str, str, Call]]:
    """Yield group, name and call of each variant whose name matches `chosen`."""
    for group, make in GROUPS.items():
        torch.manual_seed(0)
        for name, call in make():
            if re.search(chosen, f"{group}.{name}"):
                yield group, f"{group}.{name}", call


def grown(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return random values that a backward pass computes a gradient of."""
    return torch.randn(*shape).to(dtype).requires_grad_()


def optimizers() -> Made:
    """Make fused and foreach steps of optimizers, by their own operators and by torch.optim."""
    for name in ("adam", "adamw"):
        for dtype in (torch.float32, *HALVES):
            for amsgrad in (False, True):
                lists = [[torch.rand(3, 4).to(dtype), torch.rand(5).to(dtype)] for _ in range(5)]
                steps = [torch.tensor(2.0), torch.tensor(2.0)]
                settings: dict[str, Any] = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99}
                settings |= {
                    "weight_decay": 0.01,
                    "eps": 1e-8,
                    "amsgrad": amsgrad,
                    "maximize": False,
                }
                largest = lists[4] if amsgrad else []
                step = getattr(_aten, f"_fused_{name}_")
                short = str(dtype).partition(".")[2]
                call = partial(step, *lists[:4], largest, steps, **settings)
                yield f"_fused_{name}_.{short}.amsgrad_{amsgrad}", call
    for name, settings in OPTIMIZERS:
        for way in ("foreach", "fused", "plain"):
            given = settings | ({way: True} if way != "plain" else {"foreach": False})
            try:
                yield f"optim.{name}.{way}", stepping(name, given)
            except (AttributeError, TypeError, RuntimeError):
                continue  # This torch lacks the optimizer, or it has no such way.


OPTIMIZERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1}),
    ("Adadelta", {"lr": 0.1}),
    ("Adamax", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.9, "centered": True}),
    ("Rprop", {"lr": 0.1}),
    ("Muon", {"lr": 0.1}),
)


def stepping(name: str, settings: dict[str, Any]) -> Call:
    """Make two steps of an optimizer; the first makes its state."""
    parameters = [nn.Parameter(torch.rand(4, 3)), nn.Parameter(torch.rand(3, 3))]
    optimizer = getattr(torch.optim, name)(parameters, **settings)

    def step() -> None:
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = torch.rand_like(parameter)
            optimizer.step()

    return step


def recurrent() -> Made:
    """Make recurrent nets: packed and not, in both directions, with projections and by cell."""
    for name in ("LSTM", "GRU", "RNN"):
        for settings in (
            {},
            {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
            {"batch_first": True, "bias": False},
        ):
            net = getattr(nn, name)(3, 4, **settings)
            label = f"{name}.{'_'.join(settings) or 'plain'}"
            yield label, partial(net, grown(5, 2, 3))
            yield f"{label}.packed", partial(packed, net, settings.get("batch_first", False))
        cell = getattr(nn, f"{name}Cell")(3, 4)
        yield f"{name}Cell", partial(cell, grown(2, 3))
    yield "LSTM.projections", partial(nn.LSTM(3, 4, proj_size=2), grown(5, 2, 3))
    yield "RNN.relu", partial(nn.RNN(3, 4, nonlinearity="relu"), grown(5, 2, 3))
    yield (
        "LSTM.bfloat16",
        partial(nn.LSTM(3, 4, dtype=torch.bfloat16), grown(5, 2, 3, dtype=torch.bfloat16)),
    )


def packed(net: Any, batch_first: bool) -> object:
    """Run a recurrent net on sequences of different lengths."""
    sequences = grown(2, 5, 3) if batch_first else grown(5, 2, 3)
    lengths = torch.tensor([3, 5])
    given = nn.utils.rnn.pack_padded_sequence(sequences, lengths, batch_first, False)
    return nn.utils.rnn.pad_packed_sequence(net(given)[0], batch_first)


def attention() -> Made:
    """Make attention by each kernel that a CPU has, and by layers."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        short = str(dtype).partition(".")[2]
        q, k, v = (grown(2, 2, 8, 16, dtype=dtype) for _ in range(3))
        flash = functional.scaled_dot_product_attention
        yield f"flash_cpu.{short}", partial(flash, q, k, v)
        yield f"flash_cpu.causal.{short}", partial(flash, q, k, v, is_causal=True)
        mask = torch.rand(8, 8).to(dtype)
        yield f"flash_cpu.mask.{short}", partial(flash, q, k, v, attn_mask=mask)
        yield f"math.boolean.{short}", partial(flash, q, k, v, attn_mask=mask > 0.5, dropout_p=0.5)
    q, k = grown(2, 4, 8, 16), grown(2, 2, 8, 16)
    grouped = functional.scaled_dot_product_attention
    yield "grouped_queries", partial(grouped, q, k, k, enable_gqa=True)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    yield "encoder.training", partial(layer, grown(2, 5, 8))
    many = nn.MultiheadAttention(8, 2)
    x = grown(5, 2, 8)
    hidden = torch.tensor([[False] * 5, [False, False, False, True, True]])
    yield "multihead.padding", partial(many, x, x, x, key_padding_mask=hidden)
    fast = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    yield "encoder.fast", partial(without_gradient, fast, torch.rand(2, 5, 8))
    if hasattr(torch.nn, "attention"):
        from torch.nn.attention.flex_attention import flex_attention

        x = grown(1, 2, 8, 16)
        yield "flex", partial(flex_attention, x, x, x)


def without_gradient(function: Callable[..., object], *given: object) -> object:
    """Call `function` where autograd is off, which some fast paths want."""
    with torch.no_grad():
        return function(*given)


def convolutions() -> Made:
    """Make convolutions whose backward is asked for some of its gradients only."""
    for wanted in ((True, True, True), (False, True, True), (True, False, False)):
        label = "".join("xwb"[place] for place, each in enumerate(wanted) if each)
        x, w, b = torch.rand(2, 4, 7, 7), torch.rand(6, 2, 3, 3), torch.rand(6)
        for tensor, each in zip((x, w, b), wanted, strict=True):
            tensor.requires_grad_(each)
        conv = functional.conv2d
        yield f"conv2d.groups.{label}", partial(conv, x, w, b, 2, 1, 1, 2)
    channels = torch.rand(2, 4, 7, 7).to(memory_format=torch.channels_last).requires_grad_()
    net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    yield "net.channels_last", partial(net.to(memory_format=torch.channels_last), channels)
    volume = torch.rand(1, 2, 5, 5, 5).to(memory_format=torch.channels_last_3d).requires_grad_()
    yield "conv3d.channels_last_3d", partial(nn.Conv3d(2, 3, 3), volume)
    yield "conv_transpose2d", partial(nn.ConvTranspose2d(4, 2, 3, 2, 1, 1), grown(1, 4, 5, 5))
    yield (
        "conv2d.bfloat16",
        partial(nn.Conv2d(4, 2, 3, dtype=torch.bfloat16), grown(1, 4, 5, 5, dtype=torch.bfloat16)),
    )
    x, w, out = torch.rand(1, 2, 5, 5), torch.rand(3, 2, 3, 3), torch.rand(1, 3, 3, 3)
    for mask in ((True, True, True), (True, False, True), (False, False, True)):
        settings = ([3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, list(mask))
        yield f"backward.{mask}", partial(_aten.convolution_backward, out, x, w, *settings)
    saved = torch.rand(3), torch.rand(3)
    given = (torch.rand(2, 3, 4), torch.rand(2, 3, 4), torch.rand(3), *saved, *saved, True, 1e-5)
    for mask in ((True, False, False), (False, True, True)):
        yield f"batch_norm.{mask}", partial(_aten.native_batch_norm_backward, *given, list(mask))


def embeddings() -> Made:
    """Make embeddings and their bags: every mode, sparse gradients, empty bags and padding."""
    indices, offsets = torch.tensor([1, 4, 4, 0, 3]), torch.tensor([0, 2, 2])
    for mode in ("sum", "mean", "max"):
        for last in (False, True):
            bag = nn.EmbeddingBag(6, 4, mode=mode, include_last_offset=last, padding_idx=3)
            yield (
                f"bag.{mode}.{last}",
                partial(bag, indices, torch.tensor([0, 2, 2, 5][: 3 + last])),
            )
    weighted = nn.EmbeddingBag(6, 4, mode="sum")
    weights = grown(5)
    yield "bag.weights", partial(weighted, indices, offsets, weights)
    yield "bag.rows", partial(nn.EmbeddingBag(6, 4), torch.randint(0, 6, (3, 2)))
    yield "bag.sparse", partial(nn.EmbeddingBag(6, 4, sparse=True, mode="sum"), indices, offsets)
    yield "bag.int32", partial(nn.EmbeddingBag(6, 4), indices.int(), offsets.int())
    yield "embedding.sparse", partial(nn.Embedding(6, 4, sparse=True), indices)
    yield "embedding.renormed", partial(nn.Embedding(6, 4, max_norm=0.5), indices)
    yield "embedding.padding", partial(nn.Embedding(6, 4, padding_idx=1), indices.reshape(1, 5))


def known_types(names: tuple[str, ...]) -> Iterator[tuple[str, torch.dtype]]:
    """Yield those types that this torch has, by name."""
    yield from ((name, getattr(torch, name)) for name in names if hasattr(torch, name))


def small_types() -> Made:
    """Make what a CPU can do with float8, half, sub-byte and unsigned types."""
    for short, dtype in known_types(FLOAT8):
        x = torch.rand(3, 4)
        y = x.to(dtype)
        yield f"to.{short}", partial(x.to, dtype)
        yield f"from.{short}", partial(y.to, torch.float32)
        yield f"clone.{short}", lambda y=y: y.t().clone()
        yield f"cat.{short}", lambda y=y: torch.cat([y, y])
        yield f"index.{short}", lambda y=y: y[torch.tensor([2, 0])]
        yield f"view.{short}", lambda y=y: y.view(torch.uint8).view(4, 3)
        yield f"fill.{short}", lambda y=y: torch.empty_like(y).fill_(1.0)
        yield f"copy.{short}", lambda x=x, y=y: torch.empty_like(y).copy_(x)
    a = torch.rand(16, 16).to(torch.float8_e4m3fn)
    one = torch.tensor(1.0)
    scaled = partial(torch._scaled_mm, a, a.t(), one, one, out_dtype=torch.bfloat16)
    yield "scaled_mm", scaled
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        short = str(dtype).partition(".")[2]
        x = torch.tensor([3, 1, 2]).to(dtype)
        yield f"to.{short}", lambda x=x: x.to(torch.int64)
        yield f"view.{short}", lambda x=x: x.view(3, 1).clone()
        yield f"bits.{short}", lambda x=x: x & x
    for short, dtype in known_types(SUB_BYTE):
        raw = torch.randint(0, 255, (4, 2), dtype=torch.uint8)
        yield f"view.{short}", lambda raw=raw, dtype=dtype: raw.view(dtype).view(torch.uint8)
        yield f"empty.{short}", partial(torch.empty, (3, 2), dtype=dtype)
        yield f"detach.{short}", lambda raw=raw, dtype=dtype: raw.view(dtype).detach().t()
    weight = torch.randint(0, 255, (32, 32), dtype=torch.uint8)
    yield "int4pack", lambda: _aten._convert_weight_to_int4pack_for_cpu(weight.int() % 16, 2)
    x8, w8 = torch.rand(4, 32).bfloat16(), torch.randint(-9, 9, (8, 32), dtype=torch.int8)
    yield "weight_int8pack_mm", partial(_aten._weight_int8pack_mm, x8, w8, torch.rand(8).bfloat16())
    yield "int_mm", partial(torch._int_mm, torch.ones(32, 32).char(), torch.ones(32, 32).char())


def quantised() -> Made:
    """Make quantised tensors and operators on them, by tensor and by channel, real and faked."""
    x = torch.rand(2, 3, 6, 6)
    for dtype in (torch.qint8, torch.quint8, torch.qint32):
        short = str(dtype).partition(".")[2]
        q = torch.quantize_per_tensor(x, 0.1, 2, dtype)
        yield f"quantize.{short}", partial(torch.quantize_per_tensor, x, 0.1, 2, dtype)
        yield f"dequantize.{short}", q.dequantize
        yield f"int_repr.{short}", q.int_repr
        yield f"clone.{short}", q.clone
        yield f"view.{short}", lambda q=q: q.view(6, 36).t().contiguous()
    scales, zeros = torch.rand(3) + 0.1, torch.zeros(3, dtype=torch.long)
    by_channel = partial(torch.quantize_per_channel, x, scales, zeros, 1, torch.qint8)
    yield "quantize.channel", by_channel
    yield "dequantize.channel", lambda: by_channel().dequantize()
    yield "dynamic", partial(torch.quantize_per_tensor_dynamic, x, torch.qint8, False)


def quantised_operators() -> Made:
    """Make operators on quantised tensors, and on those that are quantised on the way."""
    q = torch.quantize_per_tensor(torch.rand(2, 3, 6, 6), 0.1, 2, torch.quint8)
    for name in ("relu", "hardtanh", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"):
        given = {"max_pool2d": (2,), "avg_pool2d": (2,), "adaptive_avg_pool2d": (3,)}.get(name, ())
        yield f"functional.{name}", partial(getattr(functional, name), q, *given)
    yield "functional.interpolate", partial(functional.interpolate, q, scale_factor=2.0)
    yield "functional.sigmoid", partial(torch.sigmoid, q)
    add: Any = torch.ops.quantized
    yield "add", partial(add.add, q, q, 0.2, 0)
    yield "mul", partial(add.mul, q, q, 0.2, 0)
    yield "cat", partial(add.cat, [q, q], 1, 0.1, 2)
    yield "cat.aten", partial(torch.cat, [q, q])
    yield (
        "quantized.batch_norm2d",
        partial(
            add.batch_norm2d,
            q,
            torch.ones(3),
            torch.zeros(3),
            torch.zeros(3),
            torch.ones(3),
            1e-5,
            0.1,
            0,
        ),
    )
    linear = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    dynamic = torch.ao.quantization.quantize_dynamic(linear, {nn.Linear})
    yield "dynamic.linear", partial(without_gradient, dynamic, torch.rand(2, 6))
    lstm = torch.ao.quantization.quantize_dynamic(nn.LSTM(3, 4), {nn.LSTM})
    yield "dynamic.lstm", partial(without_gradient, lstm, torch.rand(5, 2, 3))


def falsely_quantised() -> Made:
    """Make operators that round as quantised tensors do, with a gradient."""
    fake = torch.fake_quantize_per_tensor_affine
    yield "fake.tensor", partial(fake, grown(3, 4), 0.1, 0, -128, 127)
    grids = torch.rand(4) + 0.1, torch.zeros(4)
    yield (
        "fake.channel",
        partial(torch.fake_quantize_per_channel_affine, grown(3, 4), *grids, 1, -128, 127),
    )
    yield "fake.learnt", partial(
        torch._fake_quantize_learnable_per_tensor_affine,
        grown(3, 4), grown(1), grown(1), -128, 127, 1.0,
    )  # fmt: skip
    observed = torch.ao.quantization.FakeQuantize()
    yield "fake.module", lambda: observed(grown(3, 4))


def sparse() -> Made:
    """Make sparse tensors by coordinates, and operators on them."""
    dense = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0], [0.0, 0.0, 5.0]])
    held = dense.to_sparse()
    yield "to_sparse", dense.to_sparse
    yield "made", lambda: torch.sparse_coo_tensor(held.indices(), held.values(), (3, 3))
    yield (
        "coalesce",
        lambda: torch.sparse_coo_tensor(held.indices(), held.values(), (3, 3)).coalesce(),
    )
    yield "given.to_dense", held.to_dense
    yield "given.values", lambda: (held.values(), held.indices())
    yield "given._values", lambda: (held._values(), held._indices(), held._nnz())
    yield "given.mm", partial(torch.sparse.mm, held, dense)
    yield "given.addmm", partial(torch.sparse.addmm, dense, held, dense)
    yield "given.add", lambda: (held + held, dense + held)
    yield "given.mul", lambda: (held * held, held * 2.0)
    yield "given.sum", lambda: torch.sparse.sum(held, 0)
    yield "given.sum.all", lambda: torch.sparse.sum(held)
    yield "given.softmax", partial(torch.sparse.softmax, held, 1)
    yield "given.log_softmax", partial(torch.sparse.log_softmax, held, 1)
    yield "given.transpose", lambda: held.t()
    yield "given.clone", held.clone
    yield "given.select", lambda: (held[0], held.index_select(0, torch.tensor([2, 0])))
    yield "given.unary", lambda: (held.sin(), held.neg(), held.sqrt())
    yield "given.mask", lambda: dense.sparse_mask(held)
    yield "given.cat", lambda: torch.cat([held, held])
    yield "given.to", lambda: held.to(torch.float64)
    for name in ("SparseAdam", "SGD", "Adagrad"):
        yield f"optim.{name}", sparse_step(name)


def sparse_step(name: str) -> Call:
    """Make a training step whose embedding has a sparse gradient."""
    table = nn.Embedding(6, 4, sparse=True)
    optimizer = getattr(torch.optim, name)(table.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        table(torch.tensor([1, 4, 1])).sum().backward()
        optimizer.step()

    return step


def nested() -> Made:
    """Make nested tensors of the jagged layout, whose calls are recorded with those they make."""
    rows = [torch.rand(2, 8), torch.rand(5, 8)]

    def made(gradient: bool = False) -> Tensor:
        return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=gradient)

    yield "jagged.made", lambda: made().values()
    yield "jagged.mul", lambda: (made() * 2).values()
    yield "jagged.linear", lambda: nn.Linear(8, 4)(made(True)).values()
    yield "jagged.softmax", lambda: functional.softmax(made(), -1).values()
    yield "jagged.padded", lambda: torch.nested.to_padded_tensor(made(), 0.0)
    yield "jagged.norm", lambda: functional.layer_norm(made(True), (8,)).values()
    yield "jagged.sum", lambda: made(True).sum(-1).values()
    given = made()
    yield "jagged.given", lambda: (given.sin() + given).values()


def storages() -> Made:
    """Make calls that move tensors between storages, or change what they see of them."""
    x = torch.rand(4, 6)
    yield "set_.tensor", lambda: torch.empty(0).set_(x)
    yield "set_.storage", lambda: torch.empty(0).set_(x.untyped_storage(), 6, (2, 3), (6, 1))
    yield "set_.empty", lambda: torch.rand(3).set_()
    yield "resize_.larger", lambda: torch.rand(3).resize_(4, 5).fill_(1.0)
    yield "resize_.smaller", lambda: torch.rand(3, 4).resize_(2, 2) + 1
    yield "resize_as_", lambda: torch.rand(3).resize_as_(x).zero_()
    yield "as_strided", lambda: x.as_strided((3, 3), (1, 2), 2).clone()
    yield "as_strided_scatter", lambda: x.as_strided_scatter(torch.ones(2, 2), (2, 2), (6, 1), 1)
    yield "data", lambda: swap_data(torch.rand(3))
    yield "views", lambda: views(grown(4, 6) * 2)
    yield "in_place.view", lambda: in_place(grown(4, 6) * 2)
    yield "zero_dim", lambda: torch.tensor(2.0).add_(1).mul(x).sum().sqrt_()
    yield "empty.add", lambda: torch.rand(0, 3).add(1).sum(0)
    yield "empty.mm", lambda: torch.rand(0, 3) @ torch.rand(3, 0)
    yield "empty.cat", lambda: torch.cat([torch.rand(0, 3), torch.rand(2, 3)])
    yield "empty.conv", lambda: functional.conv2d(torch.rand(0, 2, 5, 5), torch.rand(3, 2, 3, 3))
    yield "split.lists", lambda: [part * 2 for part in x.split([1, 2, 1])] + list(x.unbind(1))
    yield "item", lambda: x.add(x.max().item()).tolist()
    yield "from_numpy", lambda: torch.from_numpy(x.numpy()).double()
    yield "checkpoint", checkpointed


def swap_data(tensor: Tensor) -> Tensor:
    """Give a tensor another storage behind the dispatcher's back."""
    tensor.data = torch.rand(5)
    return tensor + 1


def views(x: Tensor) -> list[Tensor]:
    """Look at a tensor in many ways."""
    return [
        x.t().diagonal(), x.unfold(1, 2, 2), x[None, 1:3, ::2], x.expand(2, 4, 6).narrow(0, 0, 1),
        x.unflatten(1, (2, 3)).movedim(0, 2), x.view(2, 12).squeeze(), x.reshape(3, 8),
    ]  # fmt: skip


def in_place(x: Tensor) -> Tensor:
    """Write through views."""
    x[1:3].mul_(2).add_(1)
    x[:, 0] = 5
    x[x > 1] = 0
    return x.t_()


def checkpointed() -> Tensor:
    """Compute a part of the forward pass again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.ReLU())
    found: Tensor = checkpoint(net, grown(2, 4), use_reentrant=False)
    return found


def values() -> Made:
    """Make calls whose results depend on values, or that draw them."""
    x = torch.tensor([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]])
    generator = torch.Generator().manual_seed(3)
    yield "generator", lambda: torch.rand(3, generator=generator).bernoulli(0.5)
    yield "nonzero", lambda: (x.nonzero(), x[x > 0.4], torch.where(x > 1))
    yield "unique", lambda: torch.unique(x, return_inverse=True, return_counts=True)
    yield "unique.dim", lambda: torch.unique(x, dim=1)
    yield "sort.gather", lambda: x.gather(1, x.sort(1).indices)
    yield "topk.scatter", lambda: torch.zeros(2, 3).scatter_(1, x.topk(2).indices, 1.0)
    yield "bincount", lambda: torch.tensor([0, 2, 2]).bincount(minlength=4)
    yield "histogram", lambda: (x.histc(4, 0, 2), torch.histogram(x, 3))
    yield "one_hot", lambda: functional.one_hot(torch.tensor([0, 2, 1]))
    yield "repeat_interleave", lambda: x.repeat_interleave(torch.tensor([1, 3]), 0)
    yield "cumulative", lambda: torch.searchsorted(x.cumsum(1), torch.rand(2, 2))
    yield "segments", lambda: torch.segment_reduce(x, "sum", lengths=torch.tensor([1, 1]))
    yield "multinomial", lambda: torch.multinomial(torch.ones(2, 4), 3)
    yield "ctc", connectionist
    yield (
        "index_put.accumulate",
        lambda: torch.zeros(3).index_put([torch.tensor([0, 0, 2])], torch.ones(3), accumulate=True),
    )
    yield "masked_scatter", lambda: torch.zeros(2, 3).masked_scatter(x > 0, torch.rand(6))
    yield "complex", lambda: torch.view_as_real((torch.complex(x, x) * 2j).conj().resolve_conj())
    yield "complex.fill", lambda: torch.full((2,), 1 + 2j) + 3j
    yield "randperm", lambda: x[:, torch.randperm(3)]
    yield "cholesky", lambda: torch.linalg.cholesky(torch.eye(3) * 2)
    yield (
        "normals",
        lambda: torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)).rsample(),
    )
    yield "amp", lambda: scaled_gradients()


def connectionist() -> Tensor:
    """Compute a connectionist loss of targets of different lengths."""
    scores = grown(6, 2, 5).log_softmax(2)
    targets, lengths = torch.tensor([1, 2, 3, 4, 1]), torch.tensor([2, 3])
    return functional.ctc_loss(scores, targets, torch.tensor([6, 5]), lengths)


def scaled_gradients() -> None:
    """Run a step of mixed precision with a scaler of gradients."""
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(torch.rand(2, 4)).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


GROUPS: dict[str, Callable[[], Made]] = {
    "optimizers": optimizers,
    "recurrent": recurrent,
    "attention": attention,
    "convolutions": convolutions,
    "embeddings": embeddings,
    "small_types": small_types,
    "quantised": lambda: chain(quantised(), quantised_operators(), falsely_quantised()),
    "sparse": sparse,
    "nested": nested,
    "storages": storages,
    "values": values,
}
