"""One rank of a replay with known values: et_replay's words in, what each collective gave out.

Runs under torchrun as `known_values.py FOLDER WORDS...` and writes FOLDER/rank-R.json: by the id of
the node, the elements of all tensors that the collective wrote to.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import torch

from et_replay.commands import main
from et_replay.replay.communication.exchange import Exchange, Transfer

RANK = int(os.environ["RANK"])
written: dict[int, list[torch.Tensor]] = {}
make = Exchange.make


def make_with_known_values(
    self: Exchange, transfer: Transfer, given: list[torch.Tensor], taken: list[torch.Tensor]
) -> None:
    """Fill what goes in with 1, 2, ... in rank 0 and 11, 12, ... in rank 1; keep what comes out."""
    value = 10 * RANK + 1
    for tensor in given:
        tensor.copy_(torch.arange(value, value + tensor.numel()))
        value += tensor.numel()
    found = re.search(r"node (\d+)", transfer.text)
    assert found is not None
    written[int(found[1])] = taken
    make(self, transfer, given, taken)


Exchange.make = make_with_known_values  # type: ignore[method-assign]
code = main(sys.argv[2:])
results = {node: torch.cat(taken).tolist() for node, taken in written.items() if taken}
Path(sys.argv[1], f"rank-{RANK}.json").write_text(json.dumps(results))
raise SystemExit(code)
