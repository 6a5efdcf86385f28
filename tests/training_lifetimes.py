"""Storages of a training job as they would be allocated: model, schedule and seed in, rows out.

One tick an allocation or a free, as in memory histories; sizes are multiples of 512 bytes. Weights
live from the first tick to the last. Within an iteration the stage of a pipeline runs the forward
and backward passes of its chunks in the interleaved order of one forward, one backward; what a
forward pass saves dies in the backward pass of the same micro-batch and chunk.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from planning_instances import Instance, instance_of

Storage = int
Pass = tuple[bool, int, int]
"""Whether forward, the chunk and the micro-batch."""


@dataclass(frozen=True)
class Job:
    """What is trained, and how; a job of one stage with one chunk accumulates micro-batches."""

    stage: int = 0
    stages: int = 1
    chunks: int = 1
    micro_batches: int = 4
    iterations: int = 2
    layers: int = 4
    """Of a chunk."""
    hidden: int = 2048
    tokens: int = 4096
    vocabulary: int = 50_304
    recompute: Literal["none", "half", "all"] = "none"
    gathered: bool = False
    """Whether weights are gathered a layer ahead and dropped after use, as ZeRO-3 does."""
    experts: int = 0
    """Of each layer; how many tokens they get varies. 0: a dense job."""
    seed: int = 0


def training_job(job: Job) -> Instance:
    """Run the job and return its storages in the order of their allocation."""
    return _Run(job).run()


def pipeline_jobs(seed: int, count: int) -> Iterator[Job]:
    """Draw jobs of about 15,000 to 76,000 storages: a stage of 4 or 8, perhaps virtual chunks."""
    draw = random.Random(seed)
    for index in range(count):
        recompute = ("none", "half", "all")[index % 3]
        job = Job(
            stage=draw.choice((0, 1, 3)),
            stages=draw.choice((4, 8)),
            chunks=draw.choice((1, 2, 4)),
            layers=draw.choice((2, 4)),
            hidden=draw.choice((1024, 2048, 4096)),
            tokens=draw.choice((2048, 4096, 8192)),
            recompute=recompute,
            gathered=draw.random() < 0.5,
            experts=draw.choice((0, 0, 8)),
            seed=seed + index,
        )
        of_a_layer = 38 + (0 if recompute == "none" else 20) + (0 if job.experts == 0 else 50)
        passes = draw.uniform(15_000, 76_000) / (job.iterations * job.layers * of_a_layer)
        rounds = max(1, round(passes / job.chunks / job.stages))
        yield replace(job, micro_batches=rounds * job.stages)


def schedule(job: Job) -> Iterator[Pass]:
    """Yield the passes of an iteration: warm-up, one forward and one backward, the rest."""
    total = job.micro_batches * job.chunks
    group = job.stages * job.chunks

    def nth(forward: bool, number: int) -> Pass:
        chunk = number % group // job.stages
        batch = number // group * job.stages + number % job.stages
        return forward, chunk if forward else job.chunks - 1 - chunk, batch

    warm_up = job.stages - job.stage - 1
    if job.chunks > 1:
        warm_up = 2 * warm_up + (job.chunks - 1) * job.stages
    warm_up = min(warm_up, total)
    yield from (nth(True, number) for number in range(warm_up))
    for number in range(total - warm_up):
        yield nth(True, number + warm_up)
        yield nth(False, number)
    yield from (nth(False, number) for number in range(total - warm_up, total))


@dataclass
class _Run:
    """Every method allocates and frees in the order in which a framework would."""

    job: Job
    tick: int = 0
    rows: list[list[int]] = field(default_factory=list)
    gathered: dict[int, list[Storage]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.job.seed)
        self.activation = 2 * self.job.tokens * self.job.hidden
        self.statistic = 4 * self.job.tokens
        self.weight = 2 * self.job.hidden**2

    def make(self, size: int) -> Storage:
        self.rows.append([self.tick, -1, -(-size // 512) * 512])
        self.tick += 1
        return len(self.rows) - 1

    def drop(self, *storages: Storage) -> None:
        for storage in storages:
            self.rows[storage][1] = self.tick
            self.tick += 1

    def run(self) -> Instance:
        job = self.job
        parameters = [
            self.make(size)
            for _ in range(job.chunks * job.layers)
            for part in self.layer_weights()
            for size in (part, 2 * part, 4 * part, 4 * part)  # weight, gradient, two moments
        ]
        saved: dict[tuple[int, int], list[list[Storage]]] = {}
        for _ in range(job.iterations):
            for forward, chunk, batch in schedule(job):
                if forward:
                    saved[chunk, batch] = self.forward(chunk)
                else:
                    self.backward(chunk, saved.pop((chunk, batch)))
            for storage in parameters[::4]:
                update, denominator = (self.make(2 * self.rows[storage][2]) for _ in range(2))
                self.drop(denominator, update)
        for row in self.rows:
            row[1] = self.tick if row[1] < 0 else row[1]
        return instance_of((start, end, size) for start, end, size in self.rows)

    def layer_weights(self) -> list[int]:
        """Return the sizes of query-key-value, projection, and the two of the feed-forward net."""
        experts = max(1, self.job.experts)
        share = 4 if self.job.gathered else 1
        return [size // share for size in self.unsharded(experts)]

    def unsharded(self, experts: int) -> list[int]:
        return [3 * self.weight, self.weight, *[4 * self.weight] * 2 * experts]

    def gather(self, chunk: int, layer: int, ahead: int) -> None:
        """Have the weights of a layer whole, and ask for those of the layer that follows."""
        if not self.job.gathered:
            return
        for number in (layer, layer + ahead):
            if 0 <= number < self.job.layers and (chunk, number) not in self.gathered:
                experts = max(1, self.job.experts)
                self.gathered[chunk, number] = [self.make(s) for s in self.unsharded(experts)]

    def scatter(self, chunk: int, layer: int) -> None:
        self.drop(*self.gathered.pop((chunk, layer), ()))

    def forward(self, chunk: int) -> list[list[Storage]]:
        """Return what the pass saves: its input, and lists of each layer."""
        saved = [[self.make(self.activation)]]
        for layer in range(self.job.layers):
            self.gather(chunk, layer, ahead=1)
            kept = self.layer_forward()
            if self.recomputed(layer):
                self.drop(*kept[:-1])
                kept = kept[-1:]
            saved.append(kept)
            self.scatter(chunk, layer)
        if self.ends_the_model(chunk):
            logits = self.make(2 * self.job.tokens * self.job.vocabulary // self.job.stages)
            softmax = self.make(2 * self.rows[logits][2])
            saved.append([logits, softmax])
        return saved

    def recomputed(self, layer: int) -> bool:
        return self.job.recompute == "all" or (self.job.recompute == "half" and layer % 2 == 0)

    def ends_the_model(self, chunk: int) -> bool:
        return self.job.stage == self.job.stages - 1 and chunk == self.job.chunks - 1

    def layer_forward(self) -> list[Storage]:
        """Return what the layer saves, in order; the last one is its output."""
        norm = [self.make(s) for s in (self.activation, self.statistic, self.statistic)]
        mixed = self.make(3 * self.activation)
        heads = [self.make(self.activation) for _ in range(3)]
        self.drop(mixed)
        attention = [self.make(self.activation), self.make(16 * self.statistic)]
        projection = self.make(self.activation)
        residual = self.make(self.activation)
        self.drop(projection)
        second = [self.make(s) for s in (self.activation, self.statistic, self.statistic)]
        kept = [*norm, *heads, *attention, residual, *second]
        kept += self.expert_forward() if self.job.experts else self.dense_forward()
        return kept

    def dense_forward(self) -> list[Storage]:
        inner = [self.make(4 * self.activation) for _ in range(2)]
        down = self.make(self.activation)
        output = self.make(self.activation)
        self.drop(down)
        return [*inner, output]

    def expert_forward(self) -> list[Storage]:
        """Route each token to two experts; how many each gets is drawn."""
        job = self.job
        logits, scores = (self.make(4 * job.tokens * job.experts) for _ in range(2))
        self.drop(logits)
        popularity = [self.draw.gammavariate(2, 1) for _ in range(job.experts)]
        scale = 2 * self.activation / sum(popularity)
        sent = [int(share * scale) for share in popularity]
        dispatched = self.make(sum(sent))
        kept, results = [scores, dispatched], []
        for size in sent:
            kept += [self.make(4 * size), self.make(4 * size)]
            results.append(self.make(size))
        combined = self.make(sum(sent))
        self.drop(*results)
        output = self.make(self.activation)
        self.drop(combined)
        return [*kept, output]

    def backward(self, chunk: int, saved: list[list[Storage]]) -> None:
        """Free what the pass saved, last first, a gradient beside each."""
        gradient = self.make(self.activation)
        if self.ends_the_model(chunk):
            logits, softmax = saved.pop()
            whole = self.make(self.rows[softmax][2])
            self.drop(softmax, logits)
            self.drop(whole)
        for layer in reversed(range(self.job.layers)):
            self.gather(chunk, layer, ahead=-1)
            kept = saved.pop()
            if self.recomputed(layer):
                again = self.layer_forward()
                self.drop(again[-1])
                kept = [*again[:-1], *kept]
            gradient = self.layer_backward(kept, gradient)
            self.scatter(chunk, layer)
        self.drop(gradient, *saved.pop())

    def layer_backward(self, kept: list[Storage], gradient: Storage) -> Storage:
        """Return the gradient of the layer's input."""
        skipped = gradient
        for storage in reversed(kept):
            size = self.rows[storage][2]
            if size >= self.activation // 8:
                following = self.make(size)
                if self.draw.random() < 0.3:
                    self.drop(self.make(self.weight))
                if gradient != skipped:
                    self.drop(gradient)
                gradient = following
            self.drop(storage)
        total = self.make(self.activation)
        self.drop(*{skipped, gradient})
        return total
