"""A dry run: the prompts that would be sent and the most they could cost, without a key and without a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from invsim.client.arms import Arm
from invsim.client.memory import Entry
from invsim.client.prompt import Consumption, Message, Turn, prompt
from invsim.live.budget import Caps, Price, most_input_tokens
from invsim.live.cases import Case, entry_for
from invsim.live.completion import Settings
from invsim.live.providers import anthropic_body, openai_body
from invsim.sim.plan import Plan, Task
from invsim.sim.scenario import MAX_ATTEMPTS
from invsim.world.server import World

Shown = tuple[str, tuple[Message, ...]]
"""A title and a prompt."""


@dataclass(frozen=True)
class Rehearsal:
    """What a run could send at most.

    Parameters
    ----------
    prompts : tuple of (title, messages)
        One of each kind of task: without memory, with its fix, and a retry.
    calls, tokens : int
    cost : float or None
        Dollars; None without a price.
    """

    prompts: tuple[Shown, ...]
    calls: int
    tokens: int
    cost: float | None

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "prompts": [
                {"title": title, "messages": [each._asdict() for each in messages]} for title, messages in self.prompts
            ],
            "most_calls": self.calls,
            "most_tokens": self.tokens,
            "most_cost": self.cost,
        }


def rehearse(
    plan: Plan,
    *,
    settings: Settings,
    arms: Sequence[Arm],
    streams: int,
    level: Consumption,
    price: Price | None,
    caps: Caps,
) -> Rehearsal:
    """Return the prompts of a run, and its cost if every episode exhausts and every answer is as long as it may be.

    The bound counts one sending a call, an append-only memory that holds each fix of an arm's key twice, and prompts
    and answers at their longest; a cap that is lower than it takes its place.
    """
    prompts, most_in = [], 0
    for task in dict.fromkeys(plan.episodes):
        entry = entry_for(task, plan.world)
        prompts += _prompts(task, entry, level, plan.world)
        longest = _longest(task, entry, level, plan.world, settings, range(MAX_ATTEMPTS))
        most_in += longest * sum(each is task for each in plan.episodes)
    times = len(arms) * streams
    return _bounded(prompts, len(plan.episodes) * MAX_ATTEMPTS * times, most_in * times, settings, price, caps)


def _bounded(
    prompts: Iterable[Shown], calls: int, input_tokens: int, settings: Settings, price: Price | None, caps: Caps
) -> Rehearsal:
    output_tokens = calls * settings.max_tokens
    tokens = input_tokens + output_tokens
    cost = None if price is None else price.worst(input_tokens, output_tokens)
    return Rehearsal(
        tuple(prompts),
        calls if caps.calls is None else min(calls, caps.calls),
        tokens if caps.tokens is None else min(tokens, caps.tokens),
        cost if cost is None or caps.cost is None else min(cost, caps.cost),
    )


def rehearse_cases(
    cases: Sequence[Case],
    *,
    settings: Settings,
    levels: Sequence[Consumption],
    calls: int,
    price: Price | None,
    caps: Caps,
) -> Rehearsal:
    """Return the prompts of a preflight, and its cost if every call were the last retry of the longest case."""
    shown, longest = [], 0
    for level in levels:
        for each in cases:
            messages = tuple(prompt(each.task.request, (each.entry,), level))
            shown.append((f"{each.task.shape}, {level}, a valid fix in memory", messages))
            last = _longest(each.task, each.entry, level, each.world, settings, [MAX_ATTEMPTS - 1])
            longest = max(longest, last)
    return _bounded(shown, calls, calls * longest, settings, price, caps)


def _prompts(task: Task, entry: Entry | None, level: Consumption, world: World) -> list[Shown]:
    shown = [(f"task {task.name}, nothing in memory", tuple(prompt(task.request, (), level)))]
    if entry is not None:
        shown.append((f"task {task.name}, its fix in memory", tuple(prompt(task.request, (entry,), level))))
        turn = Turn("{...}", world.evaluate(task.request))
        shown.append((f"task {task.name}, a retry", tuple(prompt(task.request, (), level, (turn,)))))
    return shown


def _longest(
    task: Task, entry: Entry | None, level: Consumption, world: World, settings: Settings, attempts: Iterable[int]
) -> int:
    """Return a bound on the input tokens of some attempts (from 0) of an episode that the server keeps refusing."""
    entries = () if entry is None else (entry, entry)
    build = anthropic_body if settings.provider == "anthropic" else openai_body
    turn = Turn("", world.evaluate(task.request))
    total = 0
    for attempt in attempts:
        messages = prompt(task.request, entries, level, (turn,) * attempt)
        total += most_input_tokens(build(settings, messages, 0)) + attempt * settings.max_tokens
    return total
