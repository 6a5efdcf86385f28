"""The README's tables of figures are made from the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.bench_gpu import table

ROOT = Path(__file__).resolve().parents[1]


def test_the_tables_of_a_gpu_are_those_of_its_figures() -> None:
    figures = json.loads((ROOT / "tests/benchmarks/figures_h200.json").read_text())
    readme = (ROOT / "README.md").read_text()
    begin, end = "<!-- figures -->\n", "\n<!-- end of figures -->"

    assert readme.partition(begin)[2].partition(end)[0] == table(figures)


def test_the_tables_of_ranks_are_those_of_their_figures() -> None:
    figures = ROOT / "tests/benchmarks/figures_h200_x2.json"
    words = (sys.executable, str(ROOT / "tests/benchmarks/bench_ranks.py"), "--table", str(figures))
    made = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    readme = (ROOT / "README.md").read_text()
    begin, end = "<!-- figures of ranks -->\n", "<!-- end of figures of ranks -->"

    assert readme.partition(begin)[2].partition(end)[0] == made
