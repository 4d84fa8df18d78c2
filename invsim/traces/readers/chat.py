"""Chat-message logs: an episode a record, as JSON lines, a JSON array or a single object.

OpenAI's messages (``tool_calls`` and role "tool") and Anthropic's (``tool_use`` and ``tool_result`` blocks) may even be
mixed, for each message says by its shape what it is. tau-bench's trajectories are such records, with ``traj`` in place
of ``messages``. Lines that are messages themselves make up one episode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.messages import add_message
from invsim.traces.readers.records import read_records
from invsim.traces.readers.turns import Episode, EpisodeNames, Identity
from invsim.traces.schema import Call

_RECORD = re.compile(rb'"(?:messages|traj)"\s*:\s*[\[{]')
_MESSAGE = re.compile(rb'"role"\s*:\s*"(?:system|developer|user|assistant|tool)"')
_LISTS = ("messages", "traj")


class ChatReader:
    """Reads episodes of chat messages."""

    name = "chat"

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether there are messages with roles."""
        return bool(_MESSAGE.search(head)) and (
            bool(_RECORD.search(head)) or head.lstrip(b"\xef\xbb\xbf \r\n\t[")[:1] == b"{"
        )

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls of a file, an episode at a time."""
        loose: Episode | None = None
        complete = True
        names = EpisodeNames(faults)
        for number, (place, value, torn) in enumerate(read_records(path, faults, _is_record)):
            record = Fields(value, place, faults)
            if any(key in value for key in _LISTS):
                if name := names.admit(_name(record, path, number), record):
                    yield from self._episode(record, name, path).calls(complete=id(value) not in torn)
                continue
            loose = loose or Episode(Identity(self.name, str(path), path.stem), faults)
            add_message(record, loose)
            complete = complete and id(value) not in torn
        if loose is not None:
            yield from loose.calls(complete=complete)

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
        episode = Episode(identity, record.faults)
        for key in _LISTS:
            for message in record.rows(key):
                add_message(message, episode)
        return episode


def _name(record: Fields, path: Path, number: int) -> str:
    """Return the name of an episode: its own, or that of its task and trial, or its place in the file."""
    if own := record.text("episode_id", "conversation_id", "id"):
        return own
    task, trial = record.text("task_id"), record.count("trial")
    if task:
        return f"{task}:{trial if trial is not None else number}"
    return f"{path.stem}:{number}"


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and (any(key in value for key in _LISTS) or isinstance(value.get("role"), str))
