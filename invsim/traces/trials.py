"""From the calls of an episode to its trials, a hint or a fix beside the call that followed, and to its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from invsim.traces.judging import TEXT, Answer, Injected, Result, injected_state, judge, judge_first, same, shape_of
from invsim.traces.schema import Call

if TYPE_CHECKING:
    import polars as pl

Kind: TypeAlias = Literal["recovery", "first_attempt"]
Attribution: TypeAlias = Literal["certain", "unknown"]
Ended: TypeAlias = Literal["completed", "exhausted", "gave_up", "censored"]

REFUSALS = ("refusal", "content_filter")
"""Finish reasons of a model that refused."""

CUT = ("length", "max_tokens", "max_output_tokens", "model_length", "MAX_TOKENS", "max_turns", "limit")
"""Finish reasons of a model that was cut off; on the last call of an episode, so was the episode."""

EXHAUSTED = "exhausted"
"""Warning on the last call of an episode that was allowed no further attempt."""

REFUSED_NEXT = "refused-next"
"""Warning on the last call before a turn that the model refused to give."""

LATE = "begins-late"
"""Warning on a call of an episode whose first try is not in it, as of a branch that forks off another's."""

CENSORED = ("log-ends", "torn", "truncated", "limit", "censored")
"""Warnings, or what stands before their first colon, that say an episode went on, or might have, after the log ends."""


class Trial(NamedTuple):
    """One hint shown, or one fix injected, and what the first call after it did.

    Parameters
    ----------
    model : str or None
        Of the call that followed; of the call that was told, where none did.
    task, episode_id : str
    arm, constraint : str or None
    seed : str or None
    tool : str
    kind : "recovery" or "first_attempt"
    shape : str
        A hint shape; "text" for an error without a machine-readable hint.
    attribution : "certain" or "unknown"
        Unknown in a trace without order, and where parallel calls could each be the one.
    result : str
        See ``judging.Result``.
    next_ok : bool or None
        Whether the call that followed succeeded; None for none, or for one whose answer is not in the log.
    injected : str
        State of the episode's memory block.
    """

    model: str | None
    task: str
    episode_id: str
    arm: str | None
    constraint: str | None
    seed: str | None
    tool: str
    kind: Kind
    shape: str
    attribution: Attribution
    result: Result
    next_ok: bool | None
    injected: Injected


class Episode(NamedTuple):
    """How an episode went on the tool of its first call.

    Parameters
    ----------
    model : str or None
    task, episode_id : str
    arm, constraint : str or None
    seed : str or None
    tool : str
    shape : str or None
        Of the fixes injected, else of the first hint, else "text" if there was an error.
    injected : str
    first_occurrence : bool or None
        Whether the run, known by its arm, had no earlier episode of this task.
    first_ok : bool or None
        False also where the answer to the first call is missing; the episode is then censored. None if the episode
        begins late.
    retries : int
        Calls of the tool in later steps, up to the first success.
    ended : str
    """

    model: str | None
    task: str
    episode_id: str
    arm: str | None
    constraint: str | None
    seed: str | None
    tool: str
    shape: str | None
    injected: Injected
    first_occurrence: bool | None
    first_ok: bool | None
    retries: int
    ended: Ended


def in_order(calls: Iterable[Call]) -> list[Call]:
    """Return calls by step and place within it; those that share both, as they stand."""
    return sorted(calls, key=lambda call: (call.step, call.seq))


def turns(calls: Iterable[Call]) -> list[list[list[Call]]]:
    """Return of each tool, in order of its first call, its turns: the calls of one step, which are parallel."""
    tools: dict[str, list[Call]] = {}
    for call in calls:
        tools.setdefault(call.tool, []).append(call)
    return [[list(turn) for _, turn in groupby(mine, key=lambda call: call.step)] for mine in tools.values()]


def episode_trials(calls: Iterable[Call]) -> tuple[list[Trial], Episode]:
    """Return the trials of one episode and its outcome.

    Parameters
    ----------
    calls : iterable of Call
        All of one episode, at least one, in any order.
    """
    ordered = in_order(calls)
    first, tools = ordered[0], turns(ordered)
    fixes = first.injected
    state, closing = injected_state(fixes), _closing(ordered[-1], ordered)
    certain = all(call.order_source != "flattened" for call in ordered)

    def trial(told: Call, following: Call | None, kind: Kind, shape: str, sure: bool, result: Result) -> Trial:
        acting = told if following is None else following
        return Trial(
            acting.model, first.task, first.episode_id, first.arm, first.constraint, first.seed, acting.tool, kind,
            shape, "certain" if sure and certain else "unknown", result,
            None if following is None else success(following), state,
        )  # fmt: skip

    alone = len(ordered) == 1 or ordered[1].step != first.step
    trials = [
        trial(first, first, "first_attempt", shape_of(fix.ops, None), alone, judge_first(fix, answer_of(first)))
        for fix in fixes
    ]
    silenced = {call.step for call in ordered if REFUSED_NEXT in marks(call.warnings)}
    for mine in tools:
        for turn, after in zip(mine, [*mine[1:], []], strict=True):
            errors = [call for call in turn if call.outcome == "error"]
            sure = not after or (len(errors) == 1 and len(after) == 1)
            for call in errors:
                shape = shape_of(call.hint, call.request) if call.hint else TEXT
                if call.step in silenced:
                    trials.append(trial(call, None, "recovery", shape, True, "refused"))
                elif not after:
                    result = _unanswered(later=ordered[-1].step > call.step, closing=closing)
                    trials.append(trial(call, None, "recovery", shape, True, result))
                else:
                    result = judge(call.hint, call.request, answer_of(after[0], call))
                    trials.append(trial(call, after[0], "recovery", shape, sure, result))
    late = any(LATE in marks(call.warnings) for call in ordered)
    return trials, _outcome(first, tools[0], state, closing, late=late)


def answer_of(call: Call, told: Call | None = None) -> Answer:
    """Return what a call is as an answer to the call that was told something before it."""
    again = told is not None and told.request is not None and same(told.request, call.request)
    return Answer(call.request, call.finish_reason in REFUSALS, call.parse_status, again)


def success(call: Call) -> bool | None:
    """Return whether a call succeeded; None where its answer is not in the log."""
    return None if call.outcome == "missing" else call.outcome == "ok"


def marks(warnings: Iterable[str]) -> frozenset[str]:
    """Return what warnings say of an episode: any of "exhausted", "refused-next", "begins-late" and "censored"."""
    words = {warning.partition(":")[0].strip() for warning in warnings}
    said = {EXHAUSTED, REFUSED_NEXT, LATE} & words
    return frozenset(said | ({"censored"} if words.intersection(CENSORED) else set()))


def _closing(last: Call, calls: Sequence[Call]) -> Ended:
    """Return how the log of an episode ends: "completed" stands for a log that is whole."""
    said = marks(warning for call in calls for warning in call.warnings)
    return closing(
        said, missing=last.outcome == "missing", cut=last.finish_reason in CUT, run=last.arm is not None,
        ok=last.outcome == "ok",
    )  # fmt: skip


def closing(said: frozenset[str], *, missing: bool, cut: bool, run: bool, ok: bool) -> Ended:
    """Return how a log ends, by its warnings and its last call.

    An episode of a run under an arm ends in a success or by exhaustion, so that without either its log is torn.
    """
    if "censored" in said or missing or cut:
        return "censored"
    if EXHAUSTED in said:
        return "exhausted"
    return "completed" if ok or not run else "censored"


def _unanswered(*, later: bool, closing: Ended) -> Result:
    return "censored" if closing != "completed" else "switched" if later else "gave_up"


def _outcome(first: Call, mine: Sequence[Sequence[Call]], state: Injected, closing: Ended, *, late: bool) -> Episode:
    calls = [call for turn in mine for call in turn]
    reached = next((at for at, call in enumerate(calls) if call.outcome == "ok"), None)
    until = calls if reached is None else calls[: reached + 1]
    errors = [call for call in calls if call.outcome == "error"]
    told = next((call for call in errors if call.hint), None)
    if first.injected:
        shape: str | None = shape_of((op for fix in first.injected for op in fix.ops), None)
    elif told is not None:
        shape = shape_of(told.hint, told.request)
    else:
        shape = TEXT if errors else None
    return Episode(
        first.model, first.task, first.episode_id, first.arm, first.constraint, first.seed, first.tool, shape, state,
        None if first.arm is None or first.trial is None else first.trial == 0,
        None if late else first.outcome == "ok",
        sum(call.step > first.step for call in until),
        ended(first_missing=first.outcome == "missing", completed=reached is not None, closing=closing),
    )  # fmt: skip


def ended(*, first_missing: bool, completed: bool, closing: Ended) -> Ended:
    """Return how an episode ended; a success is one whatever followed it, and an unknown first answer censors."""
    if first_missing:
        return "censored"
    if completed:
        return "completed"
    return "gave_up" if closing == "completed" else closing


def retried(tools: Iterable[Sequence[Sequence[Call]]]) -> int:
    """Return how many turns with an error were followed by another turn of their tool."""
    return sum(any(call.outcome == "error" for call in turn) for mine in tools for turn in mine[:-1])


# Frames -------------------------------------------------------------------------------------------------------------


def episodes(calls: Iterable[Call]) -> Iterator[list[Call]]:
    """Yield the calls of each episode, in order of its first row."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call.episode_id, []).append(call)
    yield from found.values()


def frames(calls: Iterable[Call]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return (trials, episodes) of the calls of one file, a row for each, as frames."""
    import polars as pl

    trials: list[Trial] = []
    rows: list[Episode] = []
    for mine in episodes(calls):
        found, row = episode_trials(mine)
        trials += found
        rows.append(row)
    return (
        pl.DataFrame(trials, schema=_schema(Trial), orient="row"),
        pl.DataFrame(rows, schema=_schema(Episode), orient="row"),
    )


def _schema(kind: type[Trial] | type[Episode]) -> dict[str, type[pl.DataType]]:
    import polars as pl

    others = {"next_ok": pl.Boolean, "first_occurrence": pl.Boolean, "first_ok": pl.Boolean, "retries": pl.Int64}
    return {name: others.get(name, pl.String) for name in kind._fields}
