"""Chat logs: messages, or items of OpenAI's Responses API, as JSON lines, a JSON array or a single object.

- A record with ``messages``, ``traj`` (tau-bench's trajectories) or ``items`` is an episode. OpenAI's messages
  (``tool_calls`` and role "tool"), Anthropic's (``tool_use`` and ``tool_result`` blocks) and items (``function_call``
  and ``function_call_output``) may even be mixed, for each says by its shape what it is.
- A response, with its ``output``, is a turn, and those of one conversation are an episode (``responses``).
- Lines that are messages or items themselves, bare or wrapped as sessions of Codex wrap them (``rollout``), make up one
  episode; those that stand in a list on one line, an episode a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.items import Items, holds_items, is_item
from invsim.traces.readers.records import read_records
from invsim.traces.readers.responses import Responses, is_response
from invsim.traces.readers.rollout import Rollout, is_line
from invsim.traces.readers.turns import Episode, EpisodeNames, Identity
from invsim.traces.schema import Call

_RECORD = re.compile(rb'"(?:messages|traj)"\s*:\s*[\[{]')
_MESSAGE = re.compile(rb'"role"\s*:\s*"(?:system|developer|user|assistant|tool)"')
_ITEM = re.compile(
    rb'"type"\s*:\s*"(?:(?:function|custom_tool|local_shell|shell|apply_patch)_call(?:_output)?|mcp_call|'
    rb'mcp_approval_request|response_item|session_meta)"|"object"\s*:\s*"response"'
)
_LISTS = ("messages", "traj", "items")


class ChatReader:
    """Reads episodes of chat messages and of items."""

    name = "chat"

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether there are messages with roles, or items."""
        begins = head.lstrip(b"\xef\xbb\xbf \r\n\t[")[:1] == b"{"
        if begins and _ITEM.search(head):
            return True
        return bool(_MESSAGE.search(head)) and (begins or bool(_RECORD.search(head)))

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls of a file, an episode at a time: those of one record first, then those of many."""
        names = EpisodeNames(faults)
        responses = Responses(self.name, path, faults, names)
        lone: dict[str, _Lone] = {}
        for number, (place, value, torn, listed) in enumerate(read_records(path, faults, _is_record)):
            record, whole = Fields(value, place, faults), id(value) not in torn
            if _is_episode(value):
                if name := names.admit(_name(record, path, number), record):
                    yield from self._episode(record, name, path).calls(complete=whole)
            elif is_response(value):
                responses.add(record, f"{path.stem}:{number}", whole=whole)
            else:
                if listed not in lone:
                    name = f"{path.stem}:{number}" if listed else path.stem
                    lone[listed] = _Lone(Episode(Identity(self.name, str(path), name), faults))
                lone[listed].add(record, whole=whole)
        for each in lone.values():
            yield from each.calls()
        yield from responses.calls()

    def _episode(self, record: Fields, name: str, path: Path) -> Episode:
        served = record.text("model")
        identity = Identity(
            source_format=self.name,
            source_file=str(path),
            episode_id=name,
            task_id=record.text("task_id") or "",
            trial=record.count("trial"),
            model=served,
            model_requested=record.text("model_requested", "requested_model"),
            model_source="record.model" if served else None,
        )
        items = Items(Episode(identity, record.faults))
        for key in _LISTS:
            for each in record.rows(key):
                items.add(each)
        return items.episode


class _Lone:
    """Messages, items and lines of a session that stand by themselves, an episode together."""

    def __init__(self, episode: Episode) -> None:
        self._items = Items(episode)
        self._rollout = Rollout(self._items)
        self._whole = True

    def add(self, record: Fields, *, whole: bool) -> None:
        """Add what one of them tells."""
        self._whole = self._whole and whole
        if is_line(record.data):
            self._rollout.add(record)
        else:
            self._items.add(record)

    def calls(self) -> Iterator[Call]:
        """Yield the rows."""
        yield from self._items.episode.calls(complete=self._whole)


def _name(record: Fields, path: Path, number: int) -> str:
    """Return the name of an episode: its own, or that of its task and trial, or its place in the file."""
    if own := record.text("episode_id", "conversation_id", "id"):
        return own
    task, trial = record.text("task_id"), record.count("trial")
    if task:
        return f"{task}:{trial if trial is not None else number}"
    return f"{path.stem}:{number}"


def _is_episode(value: dict[str, Any]) -> bool:
    return "messages" in value or "traj" in value or holds_items(value.get("items"))


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and (
        _is_episode(value)
        or isinstance(value.get("role"), str)
        or is_item(value)
        or is_line(value)
        or is_response(value)
    )
