"""A training or inference script's process in, files of what it did and of its memory out.

`rank-R.run.jsonl` tells the run and its iterations, a line as each ends; `rank-R.et.json` is the
execution trace of the chosen ones; `rank-R.snapshot.pickle` the history of CUDA memory up to there.
"""

from et_replay.capture.notebook import capture as capture
from et_replay.capture.recorder import begin as begin
from et_replay.script.iterations import mark_iteration as mark_iteration
