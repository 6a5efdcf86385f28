"""The device that a replay runs on, and where each recorded tensor goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from et_replay.errors import UsageError
from et_replay.program.program import device_kind


@dataclass(frozen=True)
class Target:
    """The replay's device, and the kind of device in the trace that it stands for."""

    device: torch.device
    recorded_kind: str

    @property
    def simulated(self) -> bool:
        """True where the memory of the recorded device is simulated, for want of the device."""
        return self.device.type in ("cpu", "meta")

    def place(self, recorded: str) -> torch.device:
        """Map a recorded device: other ranks' ordinals and other accelerators become this device.

        Host tensors of an accelerator's trace stay on the host, except on `meta`, where nothing has
        data.
        """
        kind = device_kind(recorded)
        if kind == "meta" or self.device.type == "meta":
            return torch.device("meta")
        if kind == "cpu" and self.recorded_kind != "cpu":
            return torch.device("cpu")
        return self.device

    def refuse_simulated(self, flags: Mapping[str, bool]) -> None:
        """Raise UsageError for the first flag given that only a simulated device can follow."""
        for flag, given in flags.items():
            if given and not self.simulated:
                raise UsageError(
                    f"{flag} is simulated, which {self.device} is not: use --device cpu or"
                    " --device meta."
                )


def choose_target(
    text: str, recorded_kind: str, instead: str = "use --device cpu or --device meta"
) -> Target:
    """Make the target for `auto`, `cuda`, `cuda:1`, `cpu` or `meta`.

    Raises UsageError where it cannot be had; `instead` is the way out where there is no GPU.
    """
    if text == "auto":
        text = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(text)
    except RuntimeError:
        raise UsageError(
            f"Expected a device such as auto, cuda, cuda:1, cpu or meta, got {text!r}."
        ) from None
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise UsageError(f"--device {text} needs a CUDA device and there is none; {instead}.")
        device = torch.device("cuda", device.index or 0)
        if device.index is not None and device.index >= count:
            raise UsageError(
                f"--device {text} does not exist: there are {count} CUDA devices, from cuda:0 on."
            )
    elif device.type not in ("cpu", "meta"):
        raise UsageError(
            f"Expected a device such as auto, cuda, cuda:1, cpu or meta, got {text!r}."
        )
    return Target(device, recorded_kind)


def own_device(text: str, local_rank: int) -> str:
    """Give each process of a host a GPU of its own, where `text` leaves open which one."""
    if text not in ("auto", "cuda") or (text == "auto" and not torch.cuda.is_available()):
        return text
    return f"cuda:{local_rank}"
