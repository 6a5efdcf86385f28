"""Trains the decoder on ever longer batches until memory runs out; writes the memory snapshot.

The file is what `torch.cuda.memory._dump_snapshot` writes, with Python frames only, their paths cut
to the last two parts, and packed. Beside it, `.truth.json` says what torch reported, and what the
same job does under other allocator settings, each in a process of its own. Sizes are bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:20",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "garbage_collection_threshold:0.8",
    "roundup_power2_divisions:4",
)


def main() -> None:
    """Run the job under every setting; the snapshot is that of the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="snapshot to write, .pickle.gz")
    parser.add_argument("--limit", type=int, default=1500, metavar="MIB", help="memory it may use")
    parser.add_argument("--steps", type=int, default=6, help="of growing length")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(train(arguments)))
        return
    outcomes = {}
    for setting in SETTINGS:
        command = [sys.executable, *sys.argv, "--child"]
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": setting}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        outcomes[setting or "default"] = json.loads(run.stdout)
    truth = {"command": f"python {shlex.join(sys.argv)}", "limit_bytes": arguments.limit * 2**20}
    stem = arguments.output.name.removesuffix(".pickle.gz")
    path = arguments.output.with_name(f"{stem}.truth.json")
    path.write_text(json.dumps(truth | {"outcomes": outcomes}, indent=2) + "\n")
    print(f"Wrote {arguments.output} and {path}", file=sys.stderr)


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run all steps, or until memory runs out; say which, and write the snapshot by default."""
    import torch
    from torch.nn import functional
    from transformer import Decoder

    sizes = argparse.Namespace(layers=4, width=512, heads=8, length=4096, vocabulary=8192)
    device = torch.device("cuda")
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(arguments.limit * 2**20 / total)
    recording = not os.environ["PYTORCH_CUDA_ALLOC_CONF"]
    if recording:
        torch.cuda.memory._record_memory_history("all", context="all", stacks="python")
    torch.manual_seed(0)
    model = Decoder(sizes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    message, step = "", 0
    try:
        for step in range(arguments.steps):
            length = 256 + 160 * step
            tokens = torch.randint(sizes.vocabulary, (4, length + 1), device=device)
            optimizer.zero_grad(set_to_none=True)
            logits = model(tokens[:, :-1]).flatten(0, 1)
            functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
            optimizer.step()
    except torch.OutOfMemoryError as error:
        message = str(error)
    if recording:
        dump(arguments.output)
    stats = torch.cuda.memory_stats()
    return {
        "steps": step + (not message),
        "out_of_memory": message,
        "retries": stats["num_alloc_retries"],
        "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
        "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device),
    }


def dump(path: Path) -> None:
    """Write the snapshot, every path in it cut to its last two parts."""
    import torch

    snapshot = torch.cuda.memory._snapshot()
    shorten(snapshot, set())
    path.write_bytes(gzip.compress(pickle.dumps(snapshot), mtime=0))


def shorten(value: object, seen: set[int]) -> None:
    """Cut the `filename` of every frame below `value`, each frame once."""
    if id(value) in seen or not isinstance(value, (dict, list)):
        return
    seen.add(id(value))
    if isinstance(value, dict) and isinstance(name := value.get("filename"), str):
        value["filename"] = "/".join(Path(name).parts[-4 if "site-packages" in name else -2 :])
    for item in value.values() if isinstance(value, dict) else value:
        shorten(item, seen)


if __name__ == "__main__":
    main()
