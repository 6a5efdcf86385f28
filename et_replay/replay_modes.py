"""What of a job can be replayed: its computation, its communication, or both."""

COMP, COMM, FULL = "comp", "comm", "full"
REPLAY_MODES = (COMP, COMM, FULL)
