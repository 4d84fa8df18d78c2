"""What an arm's episodes came to so far, counted from its exchanges: a run that stops early still has its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from invsim.client.memory import Slot
from invsim.client.planners.base import Injected
from invsim.live.budget import Price
from invsim.live.completion import Completion
from invsim.sim.exchange import Exchange
from invsim.sim.plan import Plan
from invsim.stats.intervals import jeffreys
from invsim.world.policies import Policy
from invsim.world.wire import Value


class Rate(NamedTuple):
    """Successes of trials."""

    hits: int
    of: int

    def to_dict(self) -> dict[str, object]:
        """Return counts, the rate (None of no trials) and Jeffreys' 95% interval."""
        lo, hi = jeffreys(self.hits, self.of).pair()
        return {
            "hits": self.hits,
            "of": self.of,
            "rate": self.hits / self.of if self.of else None,
            "interval": [lo, hi],
        }

    def __str__(self) -> str:
        if not self.of:
            return "-"
        lo, hi = jeffreys(self.hits, self.of).pair()
        return f"{self.hits}/{self.of} ({lo:.2f}-{hi:.2f})"


class _Rates:
    """Rates by name, in order of first sight."""

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}

    def add(self, name: str, hit: bool) -> None:
        hits_of = self.counts.setdefault(name, [0, 0])
        hits_of[0] += hit
        hits_of[1] += 1

    def __getitem__(self, name: str) -> Rate:
        return Rate(*self.counts.get(name, (0, 0)))

    def named(self, prefix: str) -> dict[str, Rate]:
        return {name.removeprefix(prefix): self[name] for name in self.counts if name.startswith(prefix)}


def carries_fix(exchange: Exchange) -> bool:
    """Whether a request carries the newest of its injected fixes, whatever else it holds and whatever came of it."""
    if exchange.request is None:
        return False
    sent, wanted = exchange.request.fields, exchange.entries[-1].parameters
    return all(name in sent and same(sent[name], value) for name, value in wanted.items())


def strayed(exchange: Exchange, policies: Iterable[Policy]) -> bool:
    """Whether a request was accepted that is not the task's: a field that the fix has no part in is gone or changed.

    A request that names another plan may well break no policy. The server has accepted it, and the task is not done.
    """
    task, request = exchange.task, exchange.request
    if request is None or not exchange.response.ok:
        return False
    family = None if task.slot is None else task.slot.family
    mended = next((getattr(each, "field", None) for each in policies if each.type == family), None)
    return any(
        name != mended and not (name in request.fields and same(request.fields[name], value))
        for name, value in task.request.fields.items()
    )


def same(one: Value, other: Value) -> bool:
    """Whether two values are equal, a truth value and a number never being."""
    return one == other and isinstance(one, bool) is isinstance(other, bool)


@dataclass
class ArmTally:
    """The counts of one arm.

    Parameters
    ----------
    plan : Plan
    arm : str
    price : Price or None
    """

    plan: Plan
    arm: str
    price: Price | None = None
    counts: Counter[str] = field(default_factory=Counter)
    rates: _Rates = field(default_factory=_Rates)
    cost: float = 0.0
    tokens_by_stream: Counter[int] = field(default_factory=Counter)
    whole_streams: list[int] = field(default_factory=list)
    _completed: set[tuple[int, Slot]] = field(default_factory=set)

    def add(self, exchange: Exchange, completion: Completion) -> None:
        """Count an attempt."""
        self._bill(exchange, completion)
        counts, ok, sent = self.counts, exchange.response.ok, exchange.request is not None
        counts["attempts"] += 1
        if completion.refused:
            counts["refused"] += 1
        elif not sent:
            counts[completion.parse_status] += 1
        counts["strayed"] += strayed(exchange, self.plan.domain.policies)
        if exchange.attempt == 1:
            self._first(exchange, ok)
        else:
            self.rates.add("per_retry", ok)
        if exchange.last:
            counts["episodes"] += 1
            counts["completed" if ok else "exhausted"] += 1
            if ok and exchange.task.slot is not None:
                self._completed.add((exchange.stream, exchange.task.slot))

    def _first(self, exchange: Exchange, ok: bool) -> None:
        rates, task = self.rates, exchange.task
        rates.add("first_try", ok)
        rates.add(f"class:{task.constraint}", ok)
        if self.plan.eligible[exchange.episode]:
            rates.add("eligible", ok)
        if task.slot is None:
            return
        rates.add(f"injected:{exchange.injected.name.lower()}", ok)
        if exchange.injected is Injected.VALID:
            rates.add(f"shape:{task.shape}", ok)
            rates.add(f"applied:{task.shape}", carries_fix(exchange))
        if (exchange.stream, task.slot) in self._completed:
            rates.add("validity", exchange.injected is Injected.VALID)

    def _bill(self, exchange: Exchange, completion: Completion) -> None:
        counts = self.counts
        counts["transport_retries"] += completion.transport_retries
        counts["milliseconds"] += (completion.t_end - completion.t_start) // 1_000_000
        if completion.input_tokens is None or completion.output_tokens is None:
            counts["usage_unknown"] += 1
            return
        counts["input_tokens"] += completion.input_tokens
        counts["cached_tokens"] += completion.cache_read_tokens or 0
        counts["output_tokens"] += completion.output_tokens
        self.tokens_by_stream[exchange.stream] += completion.input_tokens + completion.output_tokens
        if self.price is not None:
            self.cost += self.price.cost(completion) or 0.0

    @property
    def tokens(self) -> int:
        """Of all attempts whose usage is known."""
        return self.counts["input_tokens"] + self.counts["output_tokens"]

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        counts, rates = self.counts, self.rates
        named = (
            "episodes", "completed", "exhausted", "attempts", "refused", "invalid", "truncated", "double_encoded",
            "strayed", "transport_retries", "usage_unknown", "input_tokens", "cached_tokens", "output_tokens",
            "evictions", "restamped", "contract_failures",
        )  # fmt: skip
        return {
            "arm": self.arm,
            "whole_streams": len(self.whole_streams),
            **{name: counts[name] for name in named},
            "retries": counts["attempts"] - rates["first_try"].of,
            "seconds_per_call": counts["milliseconds"] / 1000 / counts["attempts"] if counts["attempts"] else None,
            "cost": None if self.price is None else self.cost,
            **{name: rates[name].to_dict() for name in ("first_try", "eligible", "validity", "per_retry")},
            "compliance_given_valid": rates["injected:valid"].to_dict(),
            **{
                group: {name: each.to_dict() for name, each in rates.named(prefix).items()}
                for group, prefix in (
                    ("first_try_by_class", "class:"),
                    ("first_try_by_injected", "injected:"),
                    ("compliance_by_shape", "shape:"),
                    ("applied_by_shape", "applied:"),
                )
            },
        }
