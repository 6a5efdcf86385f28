"""Programs for a GPU, each run in a process of its own: `pluggable_programs.py ALLOCATOR NAME`.

ALLOCATOR is "torch" for PyTorch's own, else what `et_replay.pluggable.install` takes. The last line
printed is a JSON object.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

MIB = 2**20


def memory() -> dict[str, int]:
    """Return the counters by which two allocators are held against each other."""
    stats = torch.cuda.memory_stats()
    kept = "allocated_bytes reserved_bytes active_bytes requested_bytes segment inactive_split"
    figures = {
        f"{name}.{pool}.{part}": stats[f"{name}.{pool}.{part}"]
        for name in kept.split()
        for pool in ("all", "small_pool", "large_pool")
        for part in ("current", "peak")
    }
    figures["num_alloc_retries"] = stats["num_alloc_retries"]
    return figures


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 31 * 31, 256),
        torch.nn.GELU(),
        torch.nn.Linear(256, 10),
    ).cuda()


def train(steps: int = 12) -> dict[str, Any]:
    torch.backends.cudnn.deterministic = True
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    generator = torch.Generator(device="cuda").manual_seed(1)
    losses = []
    torch.cuda.reset_peak_memory_stats()
    for step in range(steps):
        batch = torch.randn(16 + step % 3 * 7, 3, 64, 64, device="cuda", generator=generator)
        target = torch.arange(len(batch), device="cuda") % 10
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(batch), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {
        "losses": losses,
        "memory": memory(),
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "max_memory_reserved": torch.cuda.max_memory_reserved(),
        "backend": torch.cuda.get_allocator_backend(),
    }


def empty() -> dict[str, Any]:
    """Give the cache back several times, with something left in it."""
    kept, reserved = [], []
    for round_ in range(4):
        kept.append(torch.full((round_ + 3, MIB), float(round_), device="cuda"))
        many = [torch.empty(size * MIB, device="cuda", dtype=torch.uint8) for size in (1, 7, 40)]
        del many
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())
    intact = all(bool((tensor == number).all()) for number, tensor in enumerate(kept))
    return {"reserved": reserved, "intact": intact, "memory": memory()}


def out_of_memory() -> dict[str, Any]:
    """Run out of the memory that was allowed, and go on."""
    kept = torch.empty(600 * MIB, device="cuda", dtype=torch.uint8)
    try:
        torch.empty(600 * MIB, device="cuda", dtype=torch.uint8)
        kind, text = "none", ""
    except torch.OutOfMemoryError as error:
        kind, text = "torch.OutOfMemoryError", str(error)
    except RuntimeError as error:
        kind, text = "RuntimeError", str(error)
    del kept
    again = torch.ones(900 * MIB, device="cuda", dtype=torch.uint8)
    return {"kind": kind, "text": text, "last": int(again[-1]), "memory": memory()}


def streams() -> dict[str, Any]:
    """Let a side stream read what the main one frees and overwrites."""
    side = torch.cuda.Stream()
    wrong = 0
    results = []
    for round_ in range(60):
        source = torch.full((4 * MIB,), float(round_), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            results.append((source * 2).sum())
        source.record_stream(side)
        del source
        other = torch.full((4 * MIB,), -1.0, device="cuda")
        del other
    torch.cuda.synchronize()
    for round_, result in enumerate(results):
        wrong += result.item() != 2.0 * round_ * 4 * MIB
    torch.empty(1, device="cuda")
    stats = torch.cuda.memory_stats()
    left = stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"]
    return {"wrong": wrong, "waiting_bytes": left}


def graph() -> dict[str, Any]:
    """Capture a graph, replay it between other work, capture a second one into its pool."""
    weight = torch.randn(512, 512, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
    given = torch.ones(512, 512, device="cuda")

    def work() -> torch.Tensor:
        hidden = torch.relu(given @ weight)
        return (hidden @ weight + hidden).sum(dim=1)

    expected = []
    for value in range(4):
        given.fill_(float(value))
        expected.append(work().clone())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        output = work()
    with torch.cuda.graph(second, pool=first.pool()):
        other = work() * 2
    wrong = 0
    for value in range(4):
        junk = [torch.full((512, 512), 7.0, device="cuda") for _ in range(20)]
        given.fill_(float(value))
        first.replay()
        wrong += not torch.allclose(output, expected[value], rtol=1e-4, atol=1e-2)
        second.replay()
        wrong += not torch.allclose(other, 2 * expected[value], rtol=1e-4, atol=1e-2)
        wrong += not all(bool((tensor == 7.0).all()) for tensor in junk)
    reserved = torch.cuda.memory_reserved()
    del first, second, output, other, junk
    gc.collect()
    torch.cuda.empty_cache()
    return {"wrong": wrong, "reserved": reserved, "reserved_after": torch.cuda.memory_reserved()}


def many() -> dict[str, Any]:
    """Train for 1,000 iterations."""
    before = train(6)["memory"]
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    history = []
    for step in range(1000):
        batch = torch.randn(8 + step % 5, 3, 64, 64, device="cuda")
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
        if step % 100 == 99:
            history.append([torch.cuda.memory_allocated(), torch.cuda.memory_reserved()])
    return {"history": history, "before": before["allocated_bytes.all.current"]}


def threads() -> dict[str, Any]:
    """Allocate, write, check and free from several threads, each on a stream of its own."""
    import threading

    wrong: list[int] = []

    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for round_ in range(200):
                value = number * 1000 + round_
                size = 1000 + (round_ * 7919 + number * 104729) % 300000
                tensors = [torch.full((size,), value, device="cuda") for _ in range(3)]
                if not all(bool((tensor == value).all()) for tensor in tensors):
                    wrong.append(value)

    running = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return {"wrong": wrong, "allocated": torch.cuda.memory_allocated()}


def cost() -> dict[str, Any]:
    """Time the allocation and free of one tensor: alone, and among 2,000 others."""

    def pair_ns(size: int) -> float:
        allocate = torch.empty
        times = []
        for _ in range(30):
            start = time.perf_counter_ns()
            for _ in range(2000):
                allocate(size, device="cuda", dtype=torch.uint8)
            times.append((time.perf_counter_ns() - start) / 2000)
        return statistics.median(times)

    torch.empty(1, device="cuda")
    alone = {str(size): pair_ns(size) for size in (4096, 3 * MIB, 60 * MIB)}
    kept = [torch.empty(1000 * (i % 50 + 1), device="cuda") for i in range(2000)]
    among = {str(size): pair_ns(size) for size in (4096, 3 * MIB, 60 * MIB)}
    del kept
    return {"alone_ns": alone, "among_ns": among}


def planned() -> dict[str, Any]:
    """Serve a plan of 64 storages of 1 MiB, each allocated and freed in turn, and time it."""
    from et_replay import pluggable

    torch.empty(1, device="cuda")
    plan = plan_of_64()
    pluggable.adopt(plan, plan.storage, plan.size, plan.stream)
    pointers: list[set[int]] = [set() for _ in range(64)]
    times = []
    for _ in range(300):
        start = time.perf_counter_ns()
        for storage in range(64):
            pluggable.expect(0, storage, storage + 1)
            tensor = torch.empty(MIB, device="cuda", dtype=torch.uint8)
            pointers[storage].add(tensor.data_ptr())
            del tensor
        times.append((time.perf_counter_ns() - start) / 64)
    figures = pluggable.plan_figures()
    assert figures is not None
    return {
        "pair_ns": statistics.median(times),
        "places": [len(seen) for seen in pointers],
        "planned": figures.planned.requests,
        "displaced": figures.displaced.requests,
    }


def train_marked(ended: Callable[[int], None]) -> dict[str, Any]:
    """Train with another batch in the fifth of seven iterations, and say when each has ended."""
    torch.backends.cudnn.deterministic = True
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    generator = torch.Generator(device="cuda").manual_seed(1)
    losses = []
    for iteration, size in enumerate((16, 16, 16, 16, 9, 16, 16), start=1):
        batch = torch.randn(size, 3, 64, 64, device="cuda", generator=generator)
        target = torch.arange(len(batch), device="cuda") % 10
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(batch), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        del batch, target, loss
        torch.cuda.reset_peak_memory_stats()
        ended(iteration)
    return {"losses": losses}


def followed() -> dict[str, Any]:
    """Record a job, plan what its last iteration asks for, and follow that in the same job again.

    An entry is the requests that the list has for an iteration, those planned, and its peak.
    """
    from et_replay import _core, pluggable

    torch.empty(1, device="cuda")
    lengths, iterations = [], []
    _core.pluggable_record_trace(0, True)
    train_marked(lambda _: lengths.append(_core.pluggable_trace_length(0)))
    last = _core.pluggable_trace(0)[lengths[-2] : lengths[-1]]
    _core.pluggable_record_trace(0, False)
    gc.collect()
    pluggable.follow(plan_of_sizes([size for action, _, size, *_ in last if action == "alloc"]))

    def ended(iteration: int) -> None:
        figures = pluggable.begin_iteration(iteration)[0]
        iterations.append(
            [figures.expected, figures.planned.requests, figures.peak_allocated_bytes]
        )

    return train_marked(ended) | {"iterations": iterations}


def unfollowed() -> dict[str, Any]:
    return train_marked(lambda _: None)


def shared_by_streams() -> dict[str, Any]:
    """Hand one place of a plan from the default stream, which is slow, to another and back."""
    import numpy as np

    from et_replay import pluggable
    from et_replay.events import PlanColumns, RunPlan

    storage, size = np.arange(2, dtype=np.int64), np.full(2, 64 * MIB, dtype=np.int64)
    place, streams = np.zeros_like(storage), storage
    columns = PlanColumns(storage, place, size, storage, storage + 1, streams, 64 * MIB, 2)
    varies = np.zeros(2, dtype=bool)
    pluggable.follow(RunPlan(columns, storage, size, streams, varies, (0,), True))
    side, shared, wrong = torch.cuda.Stream(), 0, 0
    for iteration in range(1, 21):
        torch.cuda._sleep(20_000_000)
        first = torch.full((16 * MIB,), float(iteration), device="cuda")
        address = first.data_ptr()
        kept = first[:1000].clone()
        del first
        with torch.cuda.stream(side):
            second = torch.full((16 * MIB,), -1.0, device="cuda")
            shared += second.data_ptr() == address
            torch.cuda._sleep(20_000_000)
            least, most = second.min(), second.max()
        del second
        side.synchronize()
        wrong += (least.item(), most.item()) != (-1.0, -1.0)
        wrong += bool((kept != iteration).any())
        pluggable.begin_iteration(iteration)
    return {"shared": shared, "wrong": wrong}


def exit_with_live() -> dict[str, Any]:
    """Leave tensors, a stream that uses one and a graph to the end of the process."""
    global _left
    tensor = torch.ones(MIB, device="cuda")
    side = torch.cuda.Stream()
    tensor.record_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = tensor * 2
    _left = [tensor, side, captured, result]
    return {"summary": "Allocated memory" in torch.cuda.memory_summary()}


_left: list[object] = []


def late() -> dict[str, Any]:
    """Try to install an allocator after CUDA was used."""
    from et_replay import pluggable
    from et_replay.errors import UsageError

    torch.empty(1, device="cuda")
    try:
        pluggable.install("native")
    except UsageError as error:
        return {"error": str(error)}
    return {"error": None}


def compiled() -> dict[str, Any]:
    """Run a compiled function forward and backward."""
    weight = torch.randn(256, 256, device="cuda", requires_grad=True)

    @torch.compile
    def function(value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(value @ weight).sum()

    losses = []
    for _ in range(3):
        loss = function(torch.ones(64, 256, device="cuda"))
        loss.backward()
        losses.append(bool(torch.isfinite(loss)))
    return {"finite": losses}


PROGRAMS: dict[str, Callable[[], dict[str, Any]]] = {
    function.__name__: function
    for function in (
        train, empty, out_of_memory, streams, graph, many, threads, cost, planned,
        followed, unfollowed, shared_by_streams, exit_with_live, late, compiled,
    )
}  # fmt: skip


def plan_of_64() -> Any:
    import numpy as np

    from et_replay.events import PlanColumns

    storage = np.arange(64, dtype=np.int64)
    return PlanColumns(
        storage=storage,
        offset=storage * MIB,
        size=np.full(64, MIB, dtype=np.int64),
        start=storage,
        end=storage + 1,
        stream=np.zeros(64, dtype=np.int64),
        arena=64 * MIB,
        period=64,
    )


def plan_of_sizes(sizes: list[int]) -> Any:
    """Plan requests one above the other, each from its own time to the end of the iteration."""
    import numpy as np

    from et_replay.events import PlanColumns, RunPlan

    size = np.array(sizes, dtype=np.int64)
    taken = -(-size // 512) * 512
    storage = np.arange(len(size), dtype=np.int64)
    zeros = np.zeros_like(storage)
    end = np.full_like(storage, len(size))
    columns = PlanColumns(
        storage, taken.cumsum() - taken, size, storage, end, zeros, int(taken.sum()), len(size)
    )
    return RunPlan(columns, storage, size, zeros, zeros.astype(np.bool_), (0,), True)


def main() -> None:
    allocator, name = sys.argv[1:3]
    limit = 1024 * MIB if name == "out_of_memory" else None
    if allocator != "torch":
        from et_replay import pluggable

        pluggable.install(allocator, device_memory=limit)
    elif limit is not None:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
    print(json.dumps(PROGRAMS[name]()), flush=True)


if __name__ == "__main__":
    main()
