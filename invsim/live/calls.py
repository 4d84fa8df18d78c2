"""Live exchanges as rows of the native trace, with what the model's own answer adds to them."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import msgspec

from invsim.live.completion import Completion
from invsim.sim.exchange import Exchange
from invsim.traces.schema import Call, Fix, Op
from invsim.world.wire import Parameters

TOOL = "request"


def exchange_to_call(exchange: Exchange, **extra: object) -> Call:
    """Return an exchange as a row of the native trace; ``extra`` fills in what the simulator does not know."""
    task, response, request = exchange.task, exchange.response, exchange.request
    before = task.request.fields if request is None else request.fields
    fields: dict[str, object] = {
        "episode_id": f"{exchange.stream}/{exchange.episode}",
        "task_id": task.name,
        "trial": exchange.stream,
        "constraint": task.constraint,
        "step": exchange.attempt - 1,
        "tool": TOOL,
        "request": None if request is None else dict(request.fields),
        "outcome": "not_executed" if request is None else "ok" if response.ok else "error",
        "error_source": "none" if response.ok else "flag",
        "response": None if request is None else response.to_dict(),
        "hint": tuple(op for each in response.suggestions for op in _ops(before, each.parameters)),
        "injected": tuple(
            Fix(entry.value, _ops(task.request.fields, entry.parameters), valid=valid)
            for entry, valid in zip(exchange.entries, exchange.valid, strict=True)
        ),
        **extra,
    }
    return msgspec.convert(fields, Call)


def _ops(before: Parameters, parameters: Parameters) -> tuple[Op, ...]:
    return tuple(
        Op("replace" if name in before else "add", f"/{name.replace('~', '~0').replace('/', '~1')}", value)
        for name, value in parameters.items()
    )


def live_call(exchange: Exchange, completion: Completion, *, arm: str) -> Call:
    """Return the row of a live attempt."""
    refused = {"finish_reason": "refusal"} if completion.refused else {"finish_reason": completion.finish_reason}
    return exchange_to_call(
        exchange,
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
        **refused,
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
