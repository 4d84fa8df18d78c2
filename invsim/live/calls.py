"""Live exchanges as rows of the native trace, with what the model's own answer adds to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from invsim.live.completion import Completion
from invsim.sim.exchange import Exchange
from invsim.traces.schema import Call, Fix, Op
from invsim.world.policies import Lookup, Policy
from invsim.world.wire import Parameters, Shape, canonical

TOOL = "request"
EXHAUSTED = "exhausted"
"""Warning on the last row of an episode that used up its attempts."""


def conditions(policies: Iterable[Policy]) -> dict[str, str]:
    """Return of each family of conditional rewrites the condition, as a hint names it."""
    found = {}
    for policy in policies:
        if policy.shape is Shape.CONDITIONAL:
            tests = policy.when if isinstance(policy, Lookup) else ()
            texts = (f"{each.table}[{each.key}].{each.column} == {canonical(each.equals)}" for each in tests)
            found[policy.type] = " and ".join(texts) or policy.type
    return found


def exchange_to_call(exchange: Exchange, *, when: Mapping[str, str], **extra: Any) -> Call:
    """Return an attempt and its answer as a row.

    Parameters
    ----------
    exchange : Exchange
    when : mapping of family to condition
        See ``conditions``.
    **extra
        Fields of the row that an exchange does not tell, or in place of what it does.
    """
    task, response, request = exchange.task, exchange.response, exchange.request
    sent = task.request if request is None else request
    silent = (f"no-call: {response.error}",) if request is None else ()
    fields: dict[str, Any] = {
        "episode_id": f"{exchange.stream}/{exchange.episode}",
        "task_id": f"{task.constraint}/{task.name if task.slot is None else task.slot.key}",
        "constraint": task.constraint,
        "step": exchange.attempt,
        "tool": TOOL,
        "request": None if request is None else dict(request.fields),
        "outcome": "not_executed" if request is None else "ok" if response.ok else "error",
        "error_source": "flag" if request is not None and not response.ok else "none",
        "response": None if request is None else response.to_dict(),
        "hint": tuple(
            op for each in response.suggestions for op in _changes(sent.fields, each.parameters, when.get(each.type))
        ),
        "injected": _fixes(exchange, when) if exchange.attempt == 1 else (),
        "source_format": "invsim",
        "warnings": (*silent, EXHAUSTED) if exchange.last and not response.ok else silent,
    }
    return Call(**(fields | extra))


def _fixes(exchange: Exchange, when: Mapping[str, str]) -> tuple[Fix, ...]:
    return tuple(
        Fix(
            "/".join((*entry.slot, entry.value)),
            _changes(exchange.task.request.fields, entry.parameters, when.get(entry.slot.family)),
            valid=valid,
        )
        for entry, valid in zip(exchange.entries, exchange.valid, strict=True)
    )


def _changes(before: Parameters, parameters: Parameters, when: str | None) -> tuple[Op, ...]:
    """Return what merging parameters into a request changes in it."""
    return tuple(
        Op("replace" if name in before else "add", f"/{name.replace('~', '~0').replace('/', '~1')}", value, when)
        for name, value in parameters.items()
        if name not in before or canonical(before[name]) != canonical(value)
    )


def live_call(
    exchange: Exchange, completion: Completion, *, arm: str, when: Mapping[str, str], trial: int | None = None
) -> Call:
    """Return the row of a live attempt; ``trial`` says how many earlier episodes of the stream had its key."""
    return exchange_to_call(
        exchange,
        when=when,
        trial=trial,
        episode_id=f"{arm}/{exchange.stream}/{exchange.episode}",
        arm=arm,
        model=completion.model,
        model_requested=completion.model_requested,
        model_source=None if completion.model is None else "answer",
        call_id=completion.response_id,
        request_raw=None if completion.fields is not None else completion.text,
        parse_status=completion.parse_status,
        input_tokens=completion.input_tokens,
        cache_read_tokens=completion.cache_read_tokens,
        cache_write_tokens=completion.cache_write_tokens,
        output_tokens=completion.output_tokens,
        reasoning_tokens=completion.reasoning_tokens,
        t_start=completion.t_start,
        t_end=completion.t_end,
        transport_retries=completion.transport_retries,
        finish_reason="refusal" if completion.refused else completion.finish_reason,
    )


class TraceFile:
    """The native trace of a run, written anew: the journal holds all that it is made of, so each run makes the same.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb")

    def write(self, call: Call) -> None:
        """Add a row."""
        self._file.write(msgspec.json.encode(call) + b"\n")
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._file.close()
