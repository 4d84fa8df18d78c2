"""One sample of an Inspect log through inspect-ai, and its events into turns, calls and answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from invsim.traces.readers.arguments import parse_arguments, shallow
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.messages import ERROR_KINDS, add_message, time_of
from invsim.traces.readers.turns import Answer, Episode
from invsim.traces.readers.usage import inspect_usage

MOST_ROUNDS = 12
"""Times that a sample is shown to inspect-ai, each time without what it objected to the time before."""

_READ = {
    "model": ("event", "timestamp", "completed", "model", "requested_model", "output", "error"),
    "tool": ("event", "timestamp", "completed", "id", "function", "arguments", "result", "error", "failed", "pending"),
}
_UNREAD = {"model": {"input": [], "tools": [], "tool_choice": "auto", "config": {}}, "tool": {}}
"""What inspect-ai demands of an event and no call is read from: the input of a turn repeats the whole conversation."""

_INSTEAD: dict[str, Any] = {"arguments": {}, "output": {}}
"""What inspect-ai is shown in place of a field that it must have and cannot take."""


_NEEDED = ("event", "role", "id", "function", "model")
"""Fields without which an event or message tells nothing."""


class Loaded(NamedTuple):
    """The events of models and tools; in a log without events, the messages. Plain data again, whole and resolved."""

    events: list[Fields]
    messages: list[Fields]


@dataclass
class _Item:
    """An event or message as shown to inspect-ai, where it stood, and the fields that were not shown as they were."""

    data: dict[str, Any]
    place: str
    withheld: dict[str, Any] = field(default_factory=dict)


def load_sample(sample: Fields) -> Loaded:
    """Have inspect-ai read the part of a sample that calls are read from; what it objects to is left out and noted."""
    from inspect_ai.log import EvalSample, resolve_sample_attachments
    from pydantic import ValidationError

    items = {"events": _events(sample), "messages": []}
    if not items["events"]:
        items["messages"] = [_Item(each.data, each.place) for each in sample.rows("messages")]
    shown: dict[str, Any] = {"id": 1, "epoch": 1, "input": "", "target": "", "attachments": _attachments(sample)}
    for _ in range(MOST_ROUNDS):
        try:
            lists = {key: [each.data for each in value] for key, value in items.items()}
            whole = resolve_sample_attachments(EvalSample.model_validate({**shown, **lists}), "full")
        except ValidationError as error:
            told = error.errors(include_url=False, include_context=False, include_input=False)
            if not _leave_out(told, items, sample):
                break
        except (RecursionError, TypeError, ValueError, KeyError, AttributeError) as error:
            sample.faults.add(sample.place, "bad-sample", f"inspect-ai cannot read it: {str(error)[:200]}")
            return Loaded([], [])
        else:
            return Loaded(
                _plain(whole.events, items["events"], sample), _plain(whole.messages, items["messages"], sample)
            )
    sample.faults.add(sample.place, "bad-sample", "inspect-ai cannot read it, whatever is left out")
    return Loaded([], [])


def add_events(events: list[Fields], episode: Episode, *, excludes_cache: bool) -> None:
    """Add what the events of a sample tell: a model's is a turn, a tool's the answer to a call of one."""
    for event in events:
        if event.data.get("event") == "model":
            _add_model(event, episode, excludes_cache)
        else:
            _add_tool(event, episode)


def _events(sample: Fields) -> list[_Item]:
    """Return the events of models and tools, those within others too, each with no more than is read of it."""
    holder = sample.table("transcript") or sample
    found: list[_Item] = []
    waiting = list(holder.rows("events"))[::-1]
    while waiting:
        event = waiting.pop()
        kind = event.data.get("event")
        if isinstance(kind, str) and kind in _READ:
            kept = {key: event.data[key] for key in _READ[kind] if key in event.data}
            if shallow(kept):
                found.append(_Item({**kept, **_UNREAD[kind]}, event.place))
            else:
                sample.faults.add(event.place, "too-deep", "an event nests too deeply")
        elif not isinstance(kind, str):
            sample.faults.add(event.place, "bad-event", "an event of no kind")
        if isinstance(event.data.get("events"), list) and event.data["events"]:
            waiting.extend(list(event.rows("events"))[::-1])
    return found


def _attachments(sample: Fields) -> dict[str, str]:
    transcript = sample.data.get("transcript")
    holder = transcript.get("content") if isinstance(transcript, dict) else sample.data.get("attachments")
    return {key: each for key, each in holder.items() if isinstance(each, str)} if isinstance(holder, dict) else {}


def _leave_out(errors: list[Any], items: dict[str, list[_Item]], sample: Fields) -> bool:
    """Take out what inspect-ai objected to: a field where it may be absent, else the event or message around it.

    Returns whether everything objected to could be taken out.
    """
    lost: set[int] = set()
    for error in errors:
        where, told = error["loc"], str(error["msg"])[:200]
        if len(where) < 2 or where[0] not in items or not isinstance(where[1], int):
            return False
        item = items[where[0]][where[1]]
        key = next((step for step in where[2:] if isinstance(step, str) and step in item.data), None)
        if id(item) in lost or key in item.withheld:
            continue
        if key is None or key in _NEEDED:
            lost.add(id(item))
            sample.faults.add(item.place, "bad-event", f"{'.'.join(map(str, where[2:]))}: {told}")
            continue
        item.withheld[key] = item.data[key]
        item.data = {name: each for name, each in item.data.items() if name != key}
        if key in _INSTEAD:
            item.data[key] = _INSTEAD[key]
        sample.faults.add(f"{item.place}.{key}", "wrong-type", told, lost=False)
    for name, each in items.items():
        items[name] = [item for item in each if id(item) not in lost]
    return True


def _plain(models: list[Any], items: list[_Item], sample: Fields) -> list[Fields]:
    """Return what inspect-ai read as plain data, without the times it gives to events that have none."""
    found = []
    for model, item in zip(models, items, strict=True):
        data = model.model_dump(mode="json", exclude_none=True)
        if "timestamp" not in item.data:
            data.pop("timestamp", None)
        if "arguments" in item.withheld:
            data["arguments"] = item.withheld["arguments"]
        found.append(Fields(data, item.place, sample.faults))
    return found


def _add_model(event: Fields, episode: Episode, excludes_cache: bool) -> None:
    output = event.table("output")
    choice = next(output.rows("choices"), None) if output else None
    if output is None or choice is None:
        return  # a request that failed is no turn of the model
    message = choice.table("message")
    dated = {**(message.data if message else {}), "role": "assistant", "finish_reason": choice.data.get("stop_reason")}
    dated.pop("model", None)

    def dialect(_: Fields, turn: Any) -> None:
        turn.model = output.text("model")
        turn.model_source = "output.model" if turn.model else None
        turn.model_requested = event.text("requested_model", "model")
        turn.usage = inspect_usage(output.table("usage"), excludes_cache=excludes_cache)
        turn.at = time_of(event, "completed", "timestamp")

    add_message(Fields(dated, event.place, event.faults), episode, dialect=dialect)


def _add_tool(event: Fields, episode: Episode) -> None:
    tool, call_id, started = event.text("function"), event.text("id"), time_of(event, "timestamp")
    if not episode.awaits(call_id):  # run by the task itself, or the turn that asked for it is lost
        episode.turn()
        episode.call(event.place, tool, parse_arguments(event.data.get("arguments")), call_id, started)
    if not tool or event.data.get("pending"):
        return
    error = event.table("error")
    failed = error is not None or event.data.get("failed") is True
    told = error.text("message") if error else None
    outcome = ERROR_KINDS.get(error.text("type") or "") if error else None
    answer = Answer(
        told if told is not None else event.data.get("result"),
        failed or None,
        outcome=outcome,
        at=time_of(event, "completed"),
    )
    episode.answer(event.place, call_id, answer, tool)
