"""What plans for the tests: every plan goes through the slow validator before a test sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import pytest
from planner_oracle import arena_of, blocks_of, find_fault, peak_load

from et_replay.planning import Buffers, Effort, Packing, plan_buffers


class Pack(Protocol):
    """Plans columns as `Buffers` takes them."""

    def __call__(
        self,
        *columns: Sequence[int] | None,
        level: Literal["fast", "best"] = "best",
        timeout: float = 10,
    ) -> Packing: ...


@pytest.fixture(scope="session")
def pack() -> Pack:
    """Return what plans, and fails where the plan is wrong or says wrong things about itself.

    What is to be proven to be the smallest is proven long before the timeout.
    """

    def plan(
        *columns: Sequence[int] | None,
        level: Literal["fast", "best"] = "best",
        timeout: float = 10,
    ) -> Packing:
        packing = plan_buffers(Buffers(*columns), Effort(level, timeout))
        blocks = blocks_of(*columns)
        assert find_fault(blocks, packing.offsets.tolist(), packing.arena_bytes) == ""
        assert packing.arena_bytes == arena_of(blocks, packing.offsets.tolist())
        assert peak_load(blocks) <= packing.lower_bound_bytes <= packing.arena_bytes
        assert packing.proven or packing.lower_bound_bytes < packing.arena_bytes
        return packing

    return plan
