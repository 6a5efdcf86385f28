"""A sum over the leading dimensions in, the buffer that its thread blocks share out.

Source: ATen/native/cuda/Reduce.cuh of PyTorch, `setReduceConfig` and `global_memory_size`; the
names are those of the fields there. On an H200 with torch 2.11 every recorded size came out.
"""

from __future__ import annotations

import math

MULTIPROCESSORS = 132
"""Of an H100 or H200; a trace does not tell the GPU."""
THREADS_PER_MULTIPROCESSOR = 2048

_MAX_THREADS = 512
_MAX_VECTOR = 4
_WARP = 32
_MIN_VALUES_PER_THREAD = 16
_MAX_VALUES_PER_THREAD = 256


def reduction_buffer(rows: int, outputs: int, accumulated_size: int = 4) -> int:
    """Return the bytes of global memory to reduce a contiguous (rows, outputs) tensor over rows.

    `accumulated_size` is the bytes of the type that sums are kept in: of float, also for halves.
    Zero where one thread block has all the values of an output.
    """
    vector = math.gcd(outputs, _MAX_VECTOR)
    columns = outputs // vector
    block_width, block_height = _block(columns, rows, _MAX_THREADS // vector)
    grid = _div_up(columns, block_width)
    if rows < min(block_height * _MIN_VALUES_PER_THREAD, _MAX_VALUES_PER_THREAD):
        return 0  # a block is not even split along its height
    per_thread = _div_up(rows, block_height)
    blocks_per_multiprocessor = THREADS_PER_MULTIPROCESSOR // (block_width * block_height)
    target_grid = MULTIPROCESSORS * blocks_per_multiprocessor
    if per_thread < _MAX_VALUES_PER_THREAD or grid > target_grid:
        return 0
    blocks_per_output = max(
        min(_div_up(target_grid, grid), _div_up(per_thread, _MIN_VALUES_PER_THREAD)),
        _div_up(per_thread, _MAX_VALUES_PER_THREAD),
    )
    if blocks_per_output <= 1:
        return 0
    return accumulated_size * outputs * blocks_per_output * block_width * vector


def _block(columns: int, rows: int, threads: int) -> tuple[int, int]:
    """Choose width and height of a thread block (`set_block_dimension`)."""
    width_bound = min(_last_power_of_two(columns), threads)
    height_bound = min(_last_power_of_two(rows), threads)
    width = min(width_bound, _WARP)
    height = min(height_bound, threads // width)
    return min(width_bound, threads // height), height


def _last_power_of_two(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


def _div_up(number: int, divisor: int) -> int:
    return -(-number // divisor)
