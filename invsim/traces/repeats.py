"""Calls that several files tell of, which count once: a session taken up again begins with a copy of the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from invsim.traces.reader import Faults
from invsim.traces.schema import Call
from invsim.traces.trials import LATE


class Repeats:
    """Passes on the calls of one file after another, but for those that a file before told of.

    Two calls are one if format, id, model, tool, start and request are the same. Without an id, or a time of its start,
    a call is one of its own; so are calls within one file, which is its reader's matter.
    """

    def __init__(self) -> None:
        self._told: set[bytes] = set()

    def without(self, calls: Iterable[Call], faults: Faults) -> Iterator[Call]:
        """Yield the calls of a file that are new; an episode that lacks others before them begins late."""
        mine: set[bytes] = set()
        short: dict[str, bool] = {}
        count = 0
        for call in calls:
            key = _key(call)
            if key in self._told:
                short.setdefault(call.episode_id, True)
                count += 1
                continue
            if key is not None:
                mine.add(key)
            if short.get(call.episode_id):
                short[call.episode_id] = False
                call = msgspec.structs.replace(call, warnings=(LATE, *call.warnings))  # noqa: PLW2901
            yield call
        self._told |= mine
        if count:
            faults.add("", "repeated-call", f"{count} calls are in a file before, and count there", lost=False)


def _key(call: Call) -> bytes | None:
    if call.call_id is None or call.t_start is None:
        return None
    told = (call.source_format, call.call_id, call.model, call.tool, call.t_start, call.request)
    return blake2b(msgspec.json.encode(told), digest_size=16).digest()
