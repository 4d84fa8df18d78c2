"""The body of an answer as it arrives: by a deadline, and no longer than any completion is.

An HTTP client's timeout is for each piece that it reads, so a server that sends a byte now and then would be waited for
as long as it likes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

LARGEST_BODY = 16 * 1024 * 1024
"""Bytes of an answer that are read; what goes on beyond them is no completion."""


def bounded(stream: Any, deadline: float) -> Any:
    """Return a response's stream that ends with a timeout after ``deadline``, and is cut at ``LARGEST_BODY``.

    Parameters
    ----------
    stream : httpx2.SyncByteStream
    deadline : float
        On the clock of ``time.monotonic``. It is looked at as each piece arrives, so that one more piece may be waited
        for.
    """
    import httpx2

    class Bounded(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for piece in stream:
                if time.monotonic() > deadline:
                    raise httpx2.ReadTimeout("the answer went on for too long")
                size += len(piece)
                if size > LARGEST_BODY:
                    return
                yield piece

        def close(self) -> None:
            stream.close()

    return Bounded()
