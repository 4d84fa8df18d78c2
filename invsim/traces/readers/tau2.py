"""tau2-bench results, in their four shapes.

All simulations of a run in one file under ``simulations``; a ``simulation_run`` beside its ``task``; a simulation by
itself; a list, or lines, of simulations.

Calls that the simulated user makes (``requestor`` "user") are not the model's and are left out. ``agent_info.llm`` is
the model asked for; what served stands, if anywhere, in a message's ``raw_data``. Times name no zone and are taken for
UTC. ``llm_args`` is never read.
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
from invsim.traces.readers.turns import Episode, EpisodeNames, Identity, Turn
from invsim.traces.schema import Call

_STOPPED = frozenset(
    {"max_steps", "max_errors", "too_many_errors", "timeout", "agent_error", "user_error", "infrastructure_error"}
)
"""Reasons of termination after which it is not known what the model would have done."""

_AGENT = re.compile(rb'"agent_info"\s*:')
_RESULTS = re.compile(rb'"(?:user_info|environment_info|simulations)"\s*:')
_SIMULATION = re.compile(rb'"(?:simulation_run|termination_reason)"\s*:')


class Tau2Reader:
    """Reads results of tau2-bench."""

    name = "tau2"

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether there are simulations, or the header of their results."""
        return bool((_AGENT.search(head) and _RESULTS.search(head)) or _SIMULATION.search(head))

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls of a file, simulation by simulation."""
        asked: str | None = None
        number = 0
        names = EpisodeNames(faults)
        for place, value, torn, _ in read_records(path, faults, _is_part):
            record = Fields(value, place, faults)
            asked = _model_asked(record) or asked
            for simulation in _simulations(record):
                name = names.admit(simulation.text("id") or f"{path.stem}:{number}", simulation)
                number += 1
                if name:
                    whole = id(simulation.data) not in torn and simulation.text("termination_reason") not in _STOPPED
                    yield from self._episode(simulation, name, path, asked).calls(complete=whole)

    def _episode(self, simulation: Fields, name: str, path: Path, asked: str | None) -> Episode:
        identity = Identity(
            source_format=self.name,
            source_file=str(path),
            episode_id=name,
            task_id=simulation.text("task_id") or "",
            trial=simulation.count("trial"),
            model_requested=asked,
        )
        episode = Episode(identity, simulation.faults)
        for message in simulation.rows("messages"):
            for part in _of_agent(message):
                add_message(part, episode, dialect=_set_raw)
        return episode


def _is_part(value: Any) -> bool:
    """Whether a value is a results file, a wrapped or bare simulation, or the header of results."""
    return isinstance(value, dict) and (
        "simulations" in value
        or "simulation_run" in value
        or "agent_info" in value
        or ("messages" in value and ("task_id" in value or "termination_reason" in value))
    )


def _simulations(record: Fields) -> Iterator[Fields]:
    if "simulations" in record.data:
        yield from record.rows("simulations")
    elif "simulation_run" in record.data:
        if (inner := record.table("simulation_run")) is not None:
            yield inner
    elif "messages" in record.data:
        yield record


def _model_asked(record: Fields) -> str | None:
    info = record.table("info") or record
    agent = info.table("agent_info")
    return agent.text("llm") if agent else None


def _of_agent(message: Fields) -> Iterator[Fields]:
    """Yield a message without what belongs to the simulated user."""
    if message.data.get("role") == "user" or message.data.get("requestor") == "user":
        return
    kept = dict(message.data)
    for key in ("tool_calls", "tool_messages"):
        rows = kept.get(key)
        if isinstance(rows, list):
            # Entries stay in their places, so that what is wrong is found where it stands.
            kept[key] = [each for each in rows if not (isinstance(each, dict) and each.get("requestor") == "user")]
    yield Fields(kept, message.place, message.faults)


def _set_raw(message: Fields, turn: Turn) -> None:
    """Take what served, and why it stopped, from the provider's own answer: one choice, or all of it."""
    raw = message.data.get("raw_data")
    if not isinstance(raw, dict):
        return
    answer = Fields(raw, message.at("raw_data"), message.faults)
    if served := answer.text("model"):
        turn.model, turn.model_source = served, "raw_data.model"
    choice = next(answer.rows("choices"), answer)
    turn.finish_reason = choice.text("finish_reason") or turn.finish_reason
