"""Keyed random numbers: a draw is a function of (seed, stream, slot) and of nothing else.

One PCG64 sequence per seed is indexed by ``stream * slots + slot``; any part of it is reached with the bit
generator's ``advance``. So a stream has the same draws whoever runs it, in whatever order, block or process,
and every arm meets common random numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Purpose = int
FIRST_TRY: Purpose = 0
RETRY: Purpose = 1
PURPOSES = 2
"""Draws per episode: one decides the first try, one decides how many retries are needed."""


def uniforms(seed: int, *, first: int, count: int, slots: int) -> npt.NDArray[np.float64]:
    """Return the uniforms of ``count`` streams from stream ``first`` on.

    Parameters
    ----------
    seed : int
        Root entropy, 0 or more.
    first : int
        Index of the first stream, 0 or more.
    count, slots : int
        Streams wanted, and draws per stream.

    Returns
    -------
    ndarray, shape (count, slots)
        In [0, 1). Row ``i`` equals row 0 of the same call with ``first = first + i``.
    """
    return generator(seed, first=first, slots=slots).random((count, slots))


def generator(seed: int, *, first: int, slots: int) -> np.random.Generator:
    """Return a generator that is about to draw stream ``first``, and then the streams after it."""
    bits = np.random.PCG64(np.random.SeedSequence(seed))
    bits.advance(first * slots)
    return np.random.Generator(bits)
