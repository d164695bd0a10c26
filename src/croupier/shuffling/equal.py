"""Records of equal content: of each, the first one stays."""

from __future__ import annotations

import numpy as np

from croupier import _kernel
from croupier.proof import Proof
from croupier.shuffling.load import unpacked
from croupier.shuffling.run import Order
from croupier.table.packed import Integers, Octets, integers


def without_equals(
    buffer: Octets, bounds: Integers, order: Order, keys: Integers, digests: Integers, parcels: Octets | None
) -> tuple[Order, Proof]:
    """The order without them, and the proof of what is left out. Equal records stand side by side in it."""
    sorted_keys, rest = keys[order], digests[order]
    stays = np.ones(len(order), bool)
    for place in (1 + np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])).tolist():
        earlier = place - 1
        while earlier >= 0 and sorted_keys[earlier] == sorted_keys[place] and stays[place]:
            stays[place] = rest[earlier] != rest[place]
            earlier -= 1
    dropped = Proof()
    for packed in (False, True):
        chosen = order[~stays]
        chosen = chosen[(np.zeros(len(chosen)) if parcels is None else parcels[chosen]) == packed]
        for some in np.array_split(chosen, len(chosen) // 256 + 1):
            dropped = dropped.plus(_proof(buffer, bounds, some.view(np.uint64), packed=packed))
    return order[stays], dropped


def _proof(buffer: Octets, bounds: Integers, frames: Integers, *, packed: bool) -> Proof:
    size = int((bounds[frames + np.uint64(1)] - bounds[frames]).sum())
    content, edges, totals = np.empty(size, np.uint8), integers(len(frames) + 1), integers(4)
    _kernel.gather(buffer, bounds, frames, content, edges, 1)
    if packed:
        return unpacked(content.data, edges)[1]
    _kernel.fingerprint(content.data, edges, totals)
    return Proof.of(totals)
