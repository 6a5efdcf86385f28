"""The page in a real browser: what it shows are the map's figures, by mouse, keys and search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_histories import history

from et_replay.events import Action
from et_replay.formats import open_recording
from et_replay.memory_map import MemoryMap, map_memory
from et_replay.origins import MemoryClass, Origin
from et_replay.report.page import page

MIB = 2**20
SAMPLE = Path(__file__).resolve().parents[2] / "traces" / "transformer_oom.pickle.gz"
Open = Callable[[str], Any]


@pytest.fixture(scope="module")
def maps() -> list[MemoryMap]:
    made = open_recording(SAMPLE)
    names = ("native", "expandable")
    return [map_memory(made, name, 1500 * MIB, torch_version="2.11") for name in names]


def keys(window: Any, text: str) -> None:
    window.switch_to.active_element.send_keys(text)


def test_totals_at_events_are_those_of_the_map(opened: Open, maps: list[MemoryMap]) -> None:
    window = opened(page(maps))
    for row in (0, 700, 1949, 3106, 3113):
        shown = window.execute_script(f"return et_replay.totals({row})")
        assert shown["allocated"] == maps[0].timeline.allocated[row]
        assert shown["reserved"] == maps[0].timeline.reserved[row]
        assert sum(shown["by_class"].values()) == shown["allocated"]


def test_the_page_alone_tells_the_peak_and_what_was_unused_there(
    opened: Open, maps: list[MemoryMap]
) -> None:
    window = opened(page(maps))
    text = window.find_element("tag name", "header").text
    assert "1.25 GiB" in text
    assert "219 MiB" in text  # reserved, less what is allocated, at the peak
    assert "a request of 132 MiB does not fit the device" in text


def test_a_tab_shows_the_other_allocator_on_the_same_time_axis(
    opened: Open, maps: list[MemoryMap]
) -> None:
    window = opened(page(maps))
    window.find_element("css selector", "#map canvas.over").send_keys("p", "+", "+")
    before = window.execute_script("return [et_replay.view.first, et_replay.view.last]")
    assert 0 < before[0] < before[1]
    native, expandable = window.find_elements("css selector", "[role=tab]")
    expandable.click()
    assert expandable.get_attribute("aria-selected") == "true"
    assert native.get_attribute("aria-selected") == "false"
    assert window.execute_script("return [et_replay.view.first, et_replay.view.last]") == before
    shown = window.execute_script("return et_replay.totals(3106)")
    assert shown["reserved"] == maps[1].timeline.reserved[3106]


def test_keys_alone_reach_the_peak_the_failure_and_a_block(
    opened: Open, maps: list[MemoryMap]
) -> None:
    window = opened(page(maps))
    window.find_element("css selector", "#map canvas.over").send_keys("p")
    moment = window.find_element("id", "moment")
    assert "3,106" in moment.text
    keys(window, "f")
    assert "3,109" in moment.text
    keys(window, "j")
    assert "MiB" in window.find_element("id", "block").text
    keys(window, "/")
    keys(window, "forward")
    assert window.switch_to.active_element.get_attribute("id") == "search"
    assert window.find_element("id", "found").text != ""


def test_hostile_names_are_text_and_nothing_else(opened: Open) -> None:
    hostile = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked=2">'
    made = history(
        (Action.ALLOC, 0, 30 * MIB),
        (Action.ALLOC, 1, 20 * MIB),
        origins={
            0: Origin(hostile, ("'\"<b>", "x" * 10_000), MemoryClass.WEIGHT),
            1: Origin("y" * 10_000),
        },
    )
    text = page([map_memory(made, "native", 80 * MIB, torch_version="2.14")])
    assert len(text) < 100_000
    window = opened(text)
    window.find_element("css selector", "#map canvas.over").send_keys("p")
    assert "<script>window.hacked" in window.find_element("id", "largest").text
    assert window.execute_script("return window.hacked") is None
    assert window.find_elements("css selector", "img") == []


def test_a_history_without_events_opens(opened: Open) -> None:
    opened(page([map_memory(history(), "native", 80 * MIB, torch_version="2.14")]))
