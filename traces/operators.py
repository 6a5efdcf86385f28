"""Runs variants of every operator of PyTorch on the CPU, forward and backward; writes their traces.

Variants come from torch's own database of operators (`op_db`), which PyTorch is tested with, and
from `further_operators.py`. Each runs under a mark of its own; `index.json` says where it lies.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
import tempfile
import types
import unittest
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ExecutionTraceObserver, record_function
from torch.utils._pytree import tree_flatten, tree_map

if "expecttest" not in sys.modules:
    # The database imports torch's test harness, which asks for this package though it needs none.
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase  # type: ignore[attr-defined]

from further_operators import further_variants
from torch.testing._internal import common_methods_invocations as database
from torch.testing._internal.opinfo.core import (
    BinaryUfuncInfo,
    OpInfo,
    ReductionOpInfo,
    SampleInput,
    UnaryUfuncInfo,
)

SAMPLES = 4
DTYPES = (
    torch.float32,
    torch.int64,
    torch.complex64,
    torch.bfloat16,
    torch.bool,
    torch.float64,
    torch.uint8,
)
# A mark is a node without a schema; its name tells the variant.
MARK = "variant "
LARGEST = 100_000
"""Entries that a sample may have in all: shapes are to be small, not fast."""


class Variant(NamedTuple):
    """One way to run an operator: `group` names the file, `run` returns what it puts out."""

    group: str
    name: str
    run: Callable[[], object]


def group_of(operator: OpInfo) -> str:
    """Name the file that an operator of the database goes into."""
    if isinstance(operator, ReductionOpInfo):
        return "reductions"
    if isinstance(operator, (UnaryUfuncInfo, BinaryUfuncInfo)):
        return "elementwise"
    head = operator.name.partition(".")[0]
    return {"nn": "nn", "linalg": "linalg", "fft": "fft"}.get(head, "others")


def database_variants(chosen: str) -> Iterator[Variant]:
    """Make the variants of all operators of the database whose names match `chosen`."""
    for operator in database.op_db:
        supported = operator.supported_dtypes("cpu")
        dtypes = [dtype for dtype in DTYPES if dtype in supported][:4]
        for first, dtype in enumerate(dtypes or sorted(supported, key=str)[:1]):
            name = f"{operator.name}.{operator.variant_test_name}".removesuffix(".")
            if re.search(chosen, name):
                yield from variants_of(operator, name, dtype, whole=first == 0)


def variants_of(operator: OpInfo, name: str, dtype: torch.dtype, whole: bool) -> Iterator[Variant]:
    """Make the variants of one operator and type: `whole` with layouts, in place, and out=."""
    group, short = group_of(operator), str(dtype).partition(".")[2]
    differentiable = dtype.is_floating_point or dtype.is_complex
    gradient = operator.supports_autograd and differentiable
    samples = list(spread(samples_of(operator, dtype, gradient), SAMPLES if whole else 1))
    for number, sample in enumerate(samples):
        yield Variant(group, f"{name}.{short}.{number}", calling(operator, sample))
    if whole and samples:
        plain = samples_of(operator, dtype, False)[0]
        for ending, call in other_forms(operator, samples[0], plain):
            yield Variant(group, f"{name}.{short}.{ending}", call)


def other_forms(
    operator: OpInfo, sample: SampleInput, plain: SampleInput
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Make calls on strided tensors, in place, and with places for the results.

    `plain` is the sample without gradients.
    """
    sparse = any(tensor.layout is not torch.strided for tensor in tensors_of(sample))
    if not sparse:
        yield "noncontiguous", calling(operator, sample.noncontiguous())
    if operator.inplace_variant is not None and isinstance(plain.input, torch.Tensor):
        changed = SampleInput(plain.input.clone(), args=plain.args, kwargs=plain.kwargs)
        yield "inplace", calling(operator.inplace_variant, changed)
    out = places_for(operator, plain) if operator.supports_out and not sparse else None
    if out is not None:
        given = SampleInput(plain.input, args=plain.args, kwargs={**plain.kwargs, "out": out})
        yield "out", calling(operator, given)


def samples_of(operator: OpInfo, dtype: torch.dtype, gradient: bool) -> list[SampleInput]:
    """Return the small samples of the database, seeded by name and type."""
    reseed(f"{operator.name} {dtype}")
    try:
        samples = list(operator.sample_inputs("cpu", dtype, requires_grad=gradient))
    except (RuntimeError, ImportError, NotImplementedError):
        return []
    return [sample for sample in samples if is_recordable(tensors_of(sample))]


def is_recordable(tensors: list[torch.Tensor]) -> bool:
    """Tell whether tensors are small, and torch's observer can write them down.

    It loses every call that takes or returns a compressed sparse or a nested tensor, and may crash.
    """
    layouts = {tensor.layout for tensor in tensors}
    return layouts <= {torch.strided, torch.sparse_coo} and not any(
        tensor.is_nested or tensor.numel() > LARGEST for tensor in tensors
    )


def tensors_of(values: object) -> list[torch.Tensor]:
    """List the tensors in nested lists, tuples, dictionaries and samples."""
    if isinstance(values, SampleInput):
        values = [values.input, values.args, values.kwargs]
    return [leaf for leaf in tree_flatten(values)[0] if isinstance(leaf, torch.Tensor)]


def spread(samples: list[SampleInput], count: int) -> list[SampleInput]:
    """Pick `count` of the samples, the first and the last among them."""
    if len(samples) <= count:
        return samples
    step = (len(samples) - 1) / max(count - 1, 1)
    return [samples[round(k * step)] for k in range(count)]


def calling(function: Callable[..., object], sample: SampleInput) -> Callable[[], object]:
    """Make the call of `function` with a sample."""
    return lambda: function(sample.input, *sample.args, **sample.kwargs)


def places_for(operator: OpInfo, sample: SampleInput) -> Any:
    """Make tensors for `out=`; None where the results are no tensors."""
    try:
        results = operator(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, TypeError, ValueError):
        return None
    if isinstance(results, torch.Tensor):
        return torch.empty_like(results)
    if isinstance(results, tuple) and all(isinstance(r, torch.Tensor) for r in results):
        return tuple(torch.empty_like(result) for result in results)
    return None


def foreach_variants(chosen: str) -> Iterator[Variant]:
    """Make the variants of the operators that take lists of tensors."""
    kinds = ("unary", "binary", "pointwise", "reduce", "other")
    for operator in [o for kind in kinds for o in getattr(database, f"foreach_{kind}_op_db")]:
        if not re.search(chosen, operator.name):
            continue
        samples = samples_of(operator, torch.float32, False)
        for number, sample in enumerate(spread(samples, SAMPLES)):
            name = f"{operator.name}.float32.{number}"
            yield Variant("foreach", name, calling(operator, sample))
            if operator.inplace_variant is not None and number < 2:
                copies = tree_map(torch.clone, sample.input)
                changed = SampleInput(copies, args=sample.args, kwargs=sample.kwargs)
                run = calling(operator.inplace_variant, changed)
                yield Variant("foreach", f"{name}.inplace", run)


def reseed(text: str) -> None:
    """Seed every source of random values by a name, so that no variant depends on another."""
    number = sum(place * ord(letter) for place, letter in enumerate(text, 1))
    torch.manual_seed(number)
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)


def run(variant: Variant) -> str:
    """Run a variant under its mark, and backward where it can be; return why it failed, if so."""
    reseed(variant.name)
    with record_function(MARK + variant.name):
        try:
            results = tensors_of(variant.run())
            wanted = [r for r in results if r.requires_grad and r.grad_fn is not None]
            if wanted:
                torch.autograd.backward(wanted, [torch.ones_like(r) for r in wanted])
        except Exception as error:  # whatever an operator raises is no reason to end the others
            return str(error).partition("\n")[0] or type(error).__name__
    return ""


def record(variants: Iterable[Variant], path: Path) -> list[dict[str, object]]:
    """Run variants under the observer, write their trace, and return their lines of the index."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        observer = ExecutionTraceObserver().register_callback(str(plain))
        observer.start()
        failures = {variant.name: run(variant) for variant in variants}
        observer.stop()
        observer.unregister_callback()
        text = plain.read_bytes()
    nodes = json.loads(text)["nodes"]
    marks = sorted((n["id"], n["name"][len(MARK) :]) for n in nodes if n["name"].startswith(MARK))
    ends = [*(first for first, _ in marks[1:]), max(node["id"] for node in nodes) + 1]
    path.write_bytes(gzip.compress(text, mtime=0))
    return [
        {"name": name, "trace": path.name, "first": first, "end": end, "failed": failures[name]}
        for (first, name), end in zip(marks, ends, strict=True)
    ]


def main() -> None:
    """Record all variants, one trace for each group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for traces and index")
    parser.add_argument("--only", default="", help="regular expression in the operators' names")
    parser.add_argument("--further", action="store_true", help="only what the database lacks")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    arguments.output.mkdir(parents=True, exist_ok=True)
    groups: dict[str, list[Variant]] = defaultdict(list)
    made = () if arguments.further else (database_variants, foreach_variants)
    for variant in (v for make in made for v in make(arguments.only)):
        groups[variant.group].append(variant)
    for group, name, call in further_variants(arguments.only):
        groups[group].append(Variant(group, name, call))
    lines = []
    for group, variants in groups.items():
        path = arguments.output / f"{group}.json.gz"
        lines += record(variants, path)
        print(f"Wrote {path} ({len(variants)} variants, {path.stat().st_size} bytes)", flush=True)
    index = {"torch": torch.__version__, "variants": lines}
    (arguments.output / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
