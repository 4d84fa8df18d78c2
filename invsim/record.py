"""Simulated and live attempts as rows of the native trace: one call an exchange, the same whoever plays the episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from invsim.client.memory import Entry
from invsim.sim.exchange import Exchange
from invsim.sim.plan import Plan, Task
from invsim.traces.judging import same
from invsim.traces.schema import Call, Fix, Op
from invsim.traces.trials import EXHAUSTED, REFUSALS
from invsim.world.policies import Lookup, Policy
from invsim.world.wire import Parameters, Shape, canonical

FORMAT = "invsim"
TOOL = "request"


def conditions(policies: Iterable[Policy]) -> dict[str, str]:
    """Return of each family of conditional rewrites the condition, as a hint names it.

    Parameters
    ----------
    policies : iterable of Policy
    """
    return {policy.type: _condition(policy) for policy in policies if policy.shape is Shape.CONDITIONAL}


def _condition(policy: Policy) -> str:
    tests = policy.when if isinstance(policy, Lookup) else ()
    texts = (f"{each.table}[{each.key}].{each.column} == {canonical(each.equals)}" for each in tests)
    return " and ".join(texts) or policy.type


def exchange_to_call(exchange: Exchange, *, when: Mapping[str, str] | None = None, **extra: Any) -> Call:
    """Return an attempt and its answer as a row.

    Parameters
    ----------
    exchange : Exchange
    when : mapping of family to condition, optional
        See ``conditions``.
    **extra
        Fields of the row that an exchange does not tell, or in place of what it does: model, arm, usage, times ...

    Returns
    -------
    Call
        The step is the attempt. The hint is what the answer's suggestions change in the request that was sent, the
        injected fixes what they change in the task. An episode that ends without a success is marked as exhausted.
    """
    task, request, response = exchange.task, exchange.request, exchange.response
    when = {} if when is None else when
    sent = task.request if request is None else request
    refused = request is None and response.error in REFUSALS
    fields: dict[str, Any] = {
        "episode_id": f"{exchange.stream}/{exchange.episode}",
        "task_id": task_name(task),
        "constraint": task.constraint,
        "step": exchange.attempt,
        "tool": TOOL,
        "request": None if request is None else dict(request.fields),
        "parse_status": "invalid" if request is None and not refused else "ok",
        "outcome": "not_executed" if request is None else "ok" if response.ok else "error",
        "error_source": "flag" if request is not None and not response.ok else "none",
        "response": None if request is None else response.to_dict(),
        "finish_reason": response.error if refused else None,
        "hint": tuple(
            op
            for each in response.suggestions
            for op in operations(sent.fields, each.parameters, when=when.get(each.type))
        ),
        "injected": _fixes(exchange, when) if exchange.attempt == 1 else (),
        "source_format": FORMAT,
        "warnings": _warnings(exchange),
    }
    return Call(**(fields | extra))


def task_name(task: Task) -> str:
    """Return what episodes of one task share: the constraint and the key, or the name of a task without one."""
    return f"{task.constraint}/{task.name if task.slot is None else task.slot.key}"


def operations(before: Parameters, parameters: Parameters, *, when: str | None = None) -> tuple[Op, ...]:
    """Return what merging parameters into a request changes in it.

    Parameters
    ----------
    before, parameters : mapping
    when : str, optional
        The condition that the change hangs on.
    """
    return tuple(
        Op("replace" if name in before else "add", f"/{name.replace('~', '~0').replace('/', '~1')}", value, when)
        for name, value in parameters.items()
        if name not in before or not same(before[name], value)
    )


def _fixes(exchange: Exchange, when: Mapping[str, str]) -> tuple[Fix, ...]:
    fields = exchange.task.request.fields

    def fix(entry: Entry, valid: bool) -> Fix:
        family, key = entry.slot
        ops = operations(fields, entry.parameters, when=when.get(family))
        return Fix(f"{family}/{key}/{entry.value}", ops, valid=valid)

    return tuple(map(fix, exchange.entries, exchange.valid))


def _warnings(exchange: Exchange) -> tuple[str, ...]:
    """Say that nothing was sent, and why; and that the episode was allowed no further attempt."""
    silent = (f"no-call: {exchange.response.error}",) if exchange.request is None else ()
    return (*silent, EXHAUSTED) if exchange.last and not exchange.response.ok else silent


class Recorder:
    """A watcher of the engine that hands each attempt on as a row.

    Parameters
    ----------
    plan : Plan
        Its domain names the tool; its name, with model and arm, the run that episodes are told apart by.
    model, arm : str
    write : callable
        Takes the rows.
    seed : int, optional
        Of the run. Without it the arms of a trace pass for runs with random numbers of their own.
    """

    def __init__(
        self, plan: Plan, *, model: str, arm: str, write: Callable[[Call], None], seed: int | None = None
    ) -> None:
        self._run = "/".join(quote(name, safe="") for name in (plan.name, model, arm))
        self._seed = None if seed is None else str(seed)
        self._model, self._arm, self._tool, self._write = model, arm, plan.domain.name, write
        self._when = conditions(plan.domain.policies)
        self._repetitions = repetitions(plan)

    def __call__(self, exchange: Exchange) -> None:
        """Record an attempt."""
        self._write(self.call(exchange))

    def call(self, exchange: Exchange, **extra: Any) -> Call:
        """Return an attempt as a row; ``extra`` as of ``exchange_to_call``."""
        known = {
            "episode_id": f"{self._run}/{exchange.stream}/{exchange.episode}",
            "trial": self._repetitions[exchange.episode],
            "model": self._model,
            "arm": self._arm,
            "seed": self._seed,
            "tool": self._tool,
        }
        return exchange_to_call(exchange, when=self._when, **(known | extra))


def repetitions(plan: Plan) -> tuple[int | None, ...]:
    """Return of each episode how many earlier ones of its stream had the same key; None where it has none."""
    seen: dict[object, int] = {}
    found: list[int | None] = []
    for task in plan.episodes:
        found.append(None if task.slot is None else seen.get(task.slot, 0))
        seen[task.slot] = seen.get(task.slot, 0) + 1
    return tuple(found)
