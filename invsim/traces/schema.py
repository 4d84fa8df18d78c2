"""The native schema: one row per call that the model issued. Null means unknown; nothing is guessed in its place."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

OrderSource: TypeAlias = Literal["index", "parent", "timestamp", "flattened"]
ParseStatus: TypeAlias = Literal["ok", "invalid", "truncated", "double_encoded"]
Outcome: TypeAlias = Literal["ok", "error", "denied", "timeout", "not_executed", "missing"]
ErrorSource: TypeAlias = Literal["flag", "status", "predicate", "none"]
OpKind: TypeAlias = Literal["add", "replace", "remove"]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A count or a time; the bounds are checked where a row is read."""

COMPOSITE = ("request", "response", "hint", "injected", "warnings")
"""Columns that hold JSON text in Parquet and plain JSON in JSON lines."""


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change to a request.

    Parameters
    ----------
    op : "add", "replace" or "remove"
    path : str
        JSON Pointer (RFC 6901) into the request.
    value : object
        Of "add" and "replace"; null is a value, which sets and does not delete.
    when : str or None
        The condition on the request that the change hangs on: a conditional rewrite.
    """

    op: OpKind
    path: str
    value: Any = None
    when: str | None = None


class Fix(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fix that was put before the model with its task, and the episodes within which it was right.

    Parameters
    ----------
    fix_id : str
    ops : tuple of Op
    valid_from, valid_to : str or None
        First and last state in which the fix was right, as the trace names states; null where it does not say.
    valid : bool or None
        Whether it was right when it was injected; null where the trace does not say.
    """

    fix_id: str
    ops: tuple[Op, ...]
    valid_from: str | None = None
    valid_to: str | None = None
    valid: bool | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One call. Required: the episode, the step, the tool and the outcome; whatever else a log lacks stays null.

    Parameters
    ----------
    episode_id, task_id : str
        The run of a task, and the task, which is the cluster of everything estimated; by default the episode's own.
    trial : int or None
        Which repetition of the task.
    model, model_requested : str or None
        The model that served, and the one asked for.
    model_source : str or None
        Where ``model`` was read.
    arm, constraint : str or None
        Of a simulated or live run.
    seed : str or None
        Of a simulated run: its arms meet the same random numbers, stream by stream.
    step, seq : int
        The model's turn within the episode, and the call's place within the turn. Two calls of one step are
        parallel: neither retries the other.
    order_source : str
        How the order is known; in a "flattened" trace who retried what is not.
    call_id, usage_id : str or None
        Rows that share a ``usage_id`` share one bill, which counts once.
    tool : str
    request : object
        The arguments as sent; null when they could not be read.
    request_raw : str or None
        The arguments as written, where they are not ``request`` itself.
    parse_status : str
    outcome, error_source : str
        What became of the call, and how an error was told.
    status_code : int or None
    response : object
        What the tool answered.
    finish_reason : str or None
    hint : tuple of Op
        What the answer suggested.
    injected : tuple of Fix
        What the memory block held before the episode's first call.
    input_tokens : int or None
        All of them, those read from a cache included.
    cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens : int or None
        Parts of ``input_tokens``, and the output, of which reasoning is a part.
    t_start, t_end : int or None
        UTC, in nanoseconds since 1970.
    transport_retries : int
        Times the request was sent again for reasons that the model has no part in.
    source_format, source_file, source_pos : str or None
        Where the row was read.
    warnings : tuple of str
    """

    episode_id: str
    task_id: str = ""
    trial: Int64 | None = None
    model: str | None = None
    model_requested: str | None = None
    model_source: str | None = None
    arm: str | None = None
    constraint: str | None = None
    seed: str | None = None
    step: Int64
    seq: Int64 = 0
    order_source: OrderSource = "index"
    call_id: str | None = None
    tool: str
    request: Any = None
    request_raw: str | None = None
    parse_status: ParseStatus = "ok"
    outcome: Outcome
    error_source: ErrorSource = "none"
    status_code: Int64 | None = None
    response: Any = None
    finish_reason: str | None = None
    hint: tuple[Op, ...] = ()
    injected: tuple[Fix, ...] = ()
    input_tokens: Int64 | None = None
    cache_read_tokens: Int64 | None = None
    cache_write_tokens: Int64 | None = None
    output_tokens: Int64 | None = None
    reasoning_tokens: Int64 | None = None
    usage_id: str | None = None
    t_start: Int64 | None = None
    t_end: Int64 | None = None
    transport_retries: Int64 = 0
    source_format: str | None = None
    source_file: str | None = None
    source_pos: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """The cluster: the task, or the episode itself where no task is named."""
        return self.task_id or self.episode_id
