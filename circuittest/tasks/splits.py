"""Held-out pools: which examples a zoo model may be trained on, tuned on and scored on."""

from __future__ import annotations

import zlib

POOLS = ("train", "dev", "test")


def bucket(*key: object) -> int:
    """A stable number 0..99 for a key. CRC-32, because Python's ``hash`` changes from process to process."""
    return zlib.crc32("|".join(map(str, key)).encode()) % 100


def pool_of(*key: object, test: int = 20, dev: int = 10) -> str:
    """The pool of a key: ``test`` percent of the keys, then ``dev`` percent, the rest ``train``.

    A key must hold what makes an example new (the pair of names, the sorted operands), not its wording:
    keyed on ordered operands, nearly every held-out sum has a twin in the training pool.
    """
    place = bucket(*key)
    if place < test:
        return "test"
    return "dev" if place < test + dev else "train"
