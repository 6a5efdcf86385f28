"""What a rank found before it ends in, the same for the rank that tells of it out, by a store."""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Any

from et_replay.replay.communication.beats import PREFIX, Store

_MOST = 4 << 20
"""Characters that are left at most: a TCPStore takes 8 MiB at once."""


def leave(store: Store, rank: int, value: Any) -> None:
    """Leave `value` of `rank` for another rank, unless it is too large, or the store is gone."""
    text = b64encode(pickle.dumps(value)).decode()
    if len(text) <= _MOST:
        with suppress(RuntimeError):
            store.set(_key(rank), text)


def left(store: Store, size: int) -> dict[int, Any]:
    """Return what any of the `size` ranks of this replay have left up to now."""
    found = {}
    with suppress(RuntimeError):
        for rank in range(size):
            if store.check([_key(rank)]):
                found[rank] = pickle.loads(b64decode(store.get(_key(rank))))
    return found


def _key(rank: int) -> str:
    return f"{PREFIX}/left/{rank}"
