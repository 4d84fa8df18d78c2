"""Live exchanges as rows of the native trace, with what the model's own answer adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from invsim.live.completion import Completion
from invsim.record import exchange_to_call
from invsim.sim.exchange import Exchange
from invsim.traces.schema import Call


def live_call(exchange: Exchange, completion: Completion, *, arm: str, when: Mapping[str, str], **extra: Any) -> Call:
    """Return the row of a live attempt; ``extra`` as of ``invsim.record.exchange_to_call``."""
    known = {
        "episode_id": f"{arm}/{exchange.stream}/{exchange.episode}",
        "arm": arm,
        "model": completion.model,
        "model_requested": completion.model_requested,
        "model_source": None if completion.model is None else "answer",
        "call_id": completion.response_id,
        "request_raw": None if completion.fields is not None else completion.text,
        "parse_status": completion.parse_status,
        "input_tokens": completion.input_tokens,
        "cache_read_tokens": completion.cache_read_tokens,
        "cache_write_tokens": completion.cache_write_tokens,
        "output_tokens": completion.output_tokens,
        "reasoning_tokens": completion.reasoning_tokens,
        "t_start": completion.t_start,
        "t_end": completion.t_end,
        "transport_retries": completion.transport_retries,
        "finish_reason": "refusal" if completion.refused else completion.finish_reason,
    }
    return exchange_to_call(exchange, when=when, **(known | extra))
