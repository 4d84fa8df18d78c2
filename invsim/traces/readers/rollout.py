"""Sessions of Codex: lines of ``type`` and ``payload``, of which some wrap an item and some tell of the session.

A file is one session. ``turn_context`` names the model asked for; which one served is not noted. Token counts come
after the items of their response, alone or once more beside news of another kind, which must not bill the next turn.
"""

from __future__ import annotations

from typing import Any

from invsim.traces.readers.fields import Fields
from invsim.traces.readers.items import Items
from invsim.traces.readers.usage import codex_usage

_KINDS = frozenset(
    {
        "session_meta",
        "response_item",
        "turn_context",
        "event_msg",
        "token_usage_record",
        "compacted",
        "world_state",
    }
)


def is_line(value: dict[str, Any]) -> bool:
    """Return whether a value is a line of a session."""
    kind = value.get("type")
    return isinstance(kind, str) and kind in _KINDS and isinstance(value.get("payload"), dict)


class Rollout:
    """Takes the lines of a session in order."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._named = False
        self._total: Any = None

    def add(self, line: Fields) -> None:
        """Add what one line tells; lines of other kinds tell nothing of calls."""
        kind, payload = line.data["type"], Fields(line.data["payload"], line.at("payload"), line.faults)
        if kind == "response_item":
            dated = {"timestamp": line.data.get("timestamp"), **payload.data}
            self._items.add(Fields(dated, payload.place, line.faults))
        elif kind == "session_meta":
            self._name(payload)
        elif kind == "turn_context":
            self._items.told = self._items.told._replace(model_requested=payload.text("model"))
        elif kind == "token_usage_record":
            self._bill(payload.table("usage"))
        elif kind == "event_msg" and payload.data.get("type") == "token_count":
            counts = payload.table("info")
            if counts is not None and counts.data.get("total_token_usage") != self._total:
                self._total = counts.data.get("total_token_usage")
                self._bill(counts.table("last_token_usage"))

    def _name(self, meta: Fields) -> None:
        """Take the name of the session from its first line; one that was forked repeats the lines of the other."""
        name = meta.text("id", "session_id")
        if name and not self._named:
            self._items.episode.rename(name)
            self._named = True

    def _bill(self, usage: Fields | None) -> None:
        if usage is not None:
            self._items.bill(codex_usage(usage))
