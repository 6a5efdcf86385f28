"""Addresses that a device recorded in another run: those that are in use are not given again."""

from __future__ import annotations

from pathlib import Path

import pytest

from et_replay.commands import main
from et_replay.simulation import Simulator

MIB = 2**20
CONVNET = str(Path(__file__).resolve().parents[2] / "traces" / "convnet_cuda.json.gz")


def test_a_recorded_address_in_the_middle_of_a_segment_is_passed_over() -> None:
    recorded = (0x7F0000000000, 0x7F0000000000 + 2 * MIB, 0x7F0000000000 + 60 * MIB)
    simulator = Simulator("native", 400 * MIB, device_addresses=recorded)
    for storage in range(3):
        simulator.allocate(storage, 30 * MIB)
    held = sorted((segment.address, segment.size) for segment in simulator.segments())
    assert held == [
        (0x7F0000000000, 30 * MIB),
        (0x7F0000000000 + 30 * MIB, 30 * MIB),
        (0x7F0000000000 + 60 * MIB, 30 * MIB),
    ]


def test_after_the_recorded_addresses_those_in_use_are_not_given() -> None:
    simulator = Simulator("native", 400 * MIB, device_addresses=(0x7F0000000000 + 10 * MIB,))
    for storage in range(2):
        simulator.allocate(storage, 30 * MIB)
    held = sorted((segment.address, segment.size) for segment in simulator.segments())
    assert held == [
        (0x7F0000000000 + 10 * MIB, 30 * MIB),
        (0x7F0000000000 + 40 * MIB, 30 * MIB),
    ]


@pytest.mark.parametrize("allocator", ["direct", "expandable", "ideal", "stalloc"])
def test_a_snapshot_of_another_allocator_is_served_by_native(
    allocator: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "a.pickle")
    words = ["--trace", CONVNET, "--allocator", allocator, "--output", file]
    assert main(["timeline", *words]) == 0
    assert main(["compare", "--trace", file, "--allocator", "native"]) == 0
