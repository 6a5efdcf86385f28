"""Replay of a program on a device of this machine; the only floor that needs torch."""

from et_replay.replay.engine import replay
from et_replay.replay.options import ReplayOptions
from et_replay.replay.result import ReplayResult

__all__ = ["ReplayOptions", "ReplayResult", "replay"]
