"""Replay PyTorch execution traces: time, memory and out-of-memory failures, without the model."""

__version__ = "0.1.0"
