"""Collectives of a trace in, the same ones executed by torch.distributed out."""
