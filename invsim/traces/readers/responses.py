"""Responses of OpenAI's API, one a record, put together to the conversations that they are turns of.

A record is a response object, alone, with the ``input`` that it answers beside its own fields, or under ``response``
beside the request. The request names the model asked for, the response the one that served. Responses belong together
by ``conversation``, by ``previous_response_id``, or because one is sent the calls that another issued.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.items import Items, Told, calls_in, holds_items
from invsim.traces.readers.messages import time_of
from invsim.traces.readers.times import moment
from invsim.traces.readers.turns import REFUSALS, Episode, EpisodeNames, Identity
from invsim.traces.readers.usage import chat_usage
from invsim.traces.schema import Call

_REQUESTS = ("request", "responses_create_params")
_UNFINISHED = ("queued", "in_progress")


def is_response(value: dict[str, Any]) -> bool:
    """Return whether a record is, or holds, a response or the items sent for one."""
    parts = [value, *(value.get(key) for key in ("response", *_REQUESTS))]
    return any(
        isinstance(each, dict)
        and (each.get("object") == "response" or holds_items(each.get("output")) or holds_items(each.get("input")))
        for each in parts
    )


class Response:
    """One record: the response, and the request it answers, which may be the same object.

    Parameters
    ----------
    record : Fields
    whole : bool
        Whether nothing of the record is cut off.
    """

    def __init__(self, record: Fields, *, whole: bool) -> None:
        self.record, self.whole = record, whole
        self.answer = _table(record, "response") or record
        self.request = next((each for key in _REQUESTS if (each := _table(record, key))), record)
        self.id = self.answer.text("id", "response_id")
        self.previous = self.answer.text("previous_response_id") or self.request.text("previous_response_id")
        self.issued = list(calls_in(self.answer.data.get("output")))
        self.sent = list(calls_in(self.request.data.get("input")))
        self.status = self.answer.text("status")
        at = moment(self.answer.data.get("created_at")) or moment(record.data.get("timestamp"))
        self.created = at.ns if at else None
        self.name = ""

    def conversation(self) -> str | None:
        """Return the conversation that the record names."""
        if own := self.record.text("episode_id", "conversation_id"):
            return own
        for holder in (self.answer, self.request, self.record):
            inner = _table(holder, "conversation")
            if found := inner.text("id") if inner else holder.text("conversation"):
                return found
        return None

    def told(self, usage_id: str) -> Told:
        """Return what the record says of its turn."""
        apart = self.answer is not self.request
        served, details = self.answer.text("model"), self.answer.table("incomplete_details")
        asked = self.record.text("model_requested", "requested_model") or (
            self.request.text("model") if apart else None
        )
        return Told(
            model=served,
            model_requested=asked,
            model_source="response.model" if served else None,
            finish_reason=(details.text("reason") if details else None) or self.status,
            usage=chat_usage(self.answer.table("usage")),
            usage_id=usage_id,
            at=time_of(self.answer, "completed_at", "created_at") or time_of(self.record, "timestamp"),
        )

    def is_turn(self) -> bool:
        """Return whether the model answered at all: a request that failed is only sent again."""
        return bool(self.answer.data.get("output")) or (
            self.answer.data.get("object") == "response" and self.status not in ("failed", "cancelled", *_UNFINISHED)
        )

    def is_end(self) -> bool:
        """Return whether a conversation may end on the response: the model came to an end of its own."""
        details = self.answer.data.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return self.status in (None, "completed") or reason in tuple(REFUSALS)


@dataclass
class _Conversation:
    """The responses of one episode as far as they are read."""

    items: Items
    last_calls: int = -1
    size: int = 0
    whole: bool = True
    ended: bool = True
    place: dict[int, int] = field(default_factory=dict)


class Responses:
    """Takes the responses of a file and yields the calls of their conversations.

    Parameters
    ----------
    source_format : str
    path : Path
    faults : Faults
    names : EpisodeNames
        Of all records of the file.
    """

    def __init__(self, source_format: str, path: Path, faults: Faults, names: EpisodeNames) -> None:
        self._source_format, self._path, self._faults, self._names = source_format, path, faults, names
        self._records: list[Response] = []

    def add(self, record: Fields, name: str, *, whole: bool) -> None:
        """Take a record, which goes by a name if it has no id."""
        response = Response(record, whole=whole)
        response.name = response.id or name
        self._records.append(response)

    def calls(self) -> Iterator[Call]:
        """Yield the rows, conversation by conversation."""
        records = self._once()
        parents = _parents(records)
        found: dict[str, _Conversation] = {}
        threads: dict[int, _Conversation] = {}
        for at in _by_parent(records, parents, self._faults):
            parent = threads.get(parents[at]) if at in parents else None
            name = records[at].conversation()
            if name is None and parent is not None:
                thread = parent
            else:
                name = name or records[at].name
                thread = found.get(name) or self._begin(name, records[at])
                found[name] = thread
            threads[at] = thread
            self._add(at, records[at], thread, parents.get(at))
        for thread in found.values():
            yield from thread.items.episode.calls(complete=thread.whole and thread.ended)

    def _once(self) -> list[Response]:
        """Return the records in order of time, each response once: as it ended, where it was noted on its way."""
        ended = {each.id for each in self._records if each.status not in _UNFINISHED}
        kept = []
        for each in self._records:
            if each.id and each.id in ended and each.status in _UNFINISHED:
                continue
            if name := self._names.admit(each.name, each.answer if each.id else each.record):
                each.name = name
                kept.append(each)
        if all(each.created is not None for each in kept):
            kept.sort(key=lambda each: each.created or 0)
        return kept

    def _begin(self, name: str, first: Response) -> _Conversation:
        told = [first.record, _table(first.answer, "metadata"), _table(first.request, "metadata")]
        holders = [each for each in told if each is not None]
        identity = Identity(
            source_format=self._source_format,
            source_file=str(self._path),
            episode_id=name,
            task_id=next((task for each in holders if (task := each.text("task_id"))), ""),
            trial=next((trial for each in holders if (trial := each.count("trial")) is not None), None),
        )
        return _Conversation(Items(Episode(identity, self._faults)))

    def _add(self, at: int, response: Response, thread: _Conversation, parent: int | None) -> None:
        items = thread.items
        if parent in thread.place and thread.place[parent] < thread.last_calls:
            self._faults.add(
                response.record.place, "fork", "another response to the same calls came before", lost=False
            )
            items.episode.flatten()
        items.add_input(response.request)
        thread.whole, thread.ended = thread.whole and response.whole, response.is_end()
        thread.place[at] = thread.size
        if response.is_turn():
            items.add_response(response.answer, response.told(f"{items.episode.identity.episode_id}/{response.name}"))
            thread.last_calls = thread.size if response.issued else thread.last_calls
        thread.size += 1


def _parents(records: list[Response]) -> dict[int, int]:
    """Return of each record the one it follows: the one it names, or the one that issued the last call it sends."""
    by_id = {each.id: at for at, each in enumerate(records) if each.id}
    issuers: dict[tuple[str, str, str], list[int]] = {}
    for at, each in enumerate(records):
        for call in each.issued:
            issuers.setdefault(call, []).append(at)
    found: dict[int, int] = {}
    for at, each in enumerate(records):
        if each.previous in by_id:
            found[at] = by_id[each.previous]
        elif (parent := _issuer(at, each.sent, issuers)) is not None:
            found[at] = parent
    return found


def _issuer(
    at: int, sent: Sequence[tuple[str, str, str]], issuers: dict[tuple[str, str, str], list[int]]
) -> int | None:
    """Return the latest record before this one, or else the first after it, that issued the last call it sends."""
    for call in reversed(sent):
        known = issuers.get(call, [])
        if earlier := bisect_left(known, at):
            return known[earlier - 1]
        if later := known[bisect_right(known, at) :]:
            return later[0]
    return None


def _by_parent(records: list[Response], parents: dict[int, int], faults: Faults) -> Iterator[int]:
    """Yield the records with each before those that follow it, and otherwise in order."""
    waiting: dict[int, list[int]] = {}
    out: set[int] = set()
    for at in range(len(records)):
        if at in parents and parents[at] not in out:
            waiting.setdefault(parents[at], []).append(at)
            continue
        ready = deque([at])
        while ready:
            each = ready.popleft()
            yield each
            out.add(each)
            ready.extend(waiting.pop(each, ()))
    for each in sorted(each for lost in waiting.values() for each in lost):  # they follow each other, in a ring
        faults.add(records[each].record.place, "parent-loop", "a response that comes before itself", lost=False)
        yield each


def _table(holder: Fields, key: str) -> Fields | None:
    """Return an inner object where there is one; what else stands there is read elsewhere, or tells nothing."""
    return holder.table(key) if isinstance(holder.data.get(key), dict) else None
