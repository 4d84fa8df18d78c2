"""A whole stream with a real model in the loop, arm by arm, on the SimPy engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from invsim.client.arms import Arm
from invsim.client.prompt import Consumption
from invsim.errors import InputError
from invsim.live.ask import Asker
from invsim.live.budget import CapReachedError
from invsim.live.calls import live_call
from invsim.live.completion import ProviderError
from invsim.live.planner import LivePlanner
from invsim.live.tally import ArmTally
from invsim.record import conditions, repetitions
from invsim.sim.engine import Connect, simulate_block
from invsim.sim.exchange import Exchange
from invsim.sim.plan import Plan
from invsim.stats.intervals import ratio_fieller
from invsim.traces.writing import JsonLinesWriter
from invsim.world.server import Server

JOURNAL, TRACE, SUMMARY = "calls.jsonl", "trace.jsonl", "summary.json"


@dataclass(frozen=True)
class LiveResult:
    """What a run came to, whole or stopped.

    Parameters
    ----------
    scenario, model, level : str
    streams, episodes : int
        Asked for: streams per arm, and episodes per stream.
    arms : tuple of ArmTally
    asker : Asker
        With what was spent, what was recalled, and why it stopped.
    """

    scenario: str
    model: str
    level: Consumption
    streams: int
    episodes: int
    arms: tuple[ArmTally, ...]
    asker: Asker

    @property
    def stopped(self) -> str | None:
        """Why and where the run stopped; None for a whole one."""
        asker = self.asker
        return None if asker.stopped is None else f"stopped at {asker.at}: {asker.stopped}"

    def token_saving(self, arm: ArmTally) -> dict[str, object] | None:
        """Return the share of A0's tokens that an arm saves, over the streams that both finished.

        With Fieller's 95% interval from two streams on; None without A0, or where a call's usage is unknown.
        """
        base = next((each for each in self.arms if each.arm == "A0"), None)
        if base is None or base is arm or base.counts["usage_unknown"] or arm.counts["usage_unknown"]:
            return None
        both = [each for each in arm.whole_streams if each in base.whole_streams]
        mine, theirs = ([each.tokens_by_stream[stream] for stream in both] for each in (arm, base))
        if not sum(theirs):
            return None
        interval = None
        if len(both) > 1:
            lo, hi = ratio_fieller(mine, theirs).pair()
            interval = [1 - hi, 1 - lo] if hi - lo < float("inf") else None
        return {"value": 1 - sum(mine) / sum(theirs), "interval": interval, "streams": len(both)}

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        asker = self.asker
        spent = asker.budget.spent
        return {
            "scenario": self.scenario,
            "model": self.model,
            "consumption": str(self.level),
            "streams": self.streams,
            "episodes": self.episodes,
            "stopped": self.stopped,
            "calls_new": asker.fresh,
            "calls_recalled": asker.recalled,
            "spent": {
                "calls": spent.calls,
                "tokens": spent.tokens,
                "cost": spent.cost if asker.budget.price is not None else None,
            },
            "served": [
                {"model": model, "as_requested": how, "calls": calls} for (model, how), calls in asker.served.items()
            ],
            "journal_faults": [str(each) for each in asker.journal.bad],
            "arms": [{**each.to_dict(), "token_saving": self.token_saving(each)} for each in self.arms],
        }


def run_live(
    plan: Plan,
    *,
    asker: Asker,
    arms: Sequence[Arm],
    streams: int,
    level: Consumption,
    folder: Path,
    connect: Connect = Server,
    tick_seconds: float | None = None,
    ended: Callable[[], None] | None = None,
) -> LiveResult:
    """Play every arm's streams with a real model, until they end or a cap or the provider stops the run.

    What has been answered before is taken from the journal, so the same command goes on where an earlier one stopped.
    The trace is written anew from all answers, old and new.

    Parameters
    ----------
    plan : Plan
    asker : Asker
    arms : sequence of Arm
    streams : int
        Per arm, 1 or more.
    level : Consumption
    folder : Path
        For ``trace.jsonl``.
    connect : callable, optional
        Opens the server that each stream meets.
    tick_seconds : float, optional
        Seconds of the model's own time that make a tick of the stream, above 0: drift then comes while it thinks. By
        default an answer takes no time.
    ended : callable, optional
        Called as each episode ends.

    Raises
    ------
    InputError
    """
    if tick_seconds is not None and not tick_seconds > 0:
        raise InputError("a tick takes more than 0 seconds", value=tick_seconds)
    if streams < 1:
        raise InputError("seeds must be 1 or more", value=streams)
    folder.mkdir(parents=True, exist_ok=True)
    tallies = [ArmTally(plan, arm.name, asker.budget.price) for arm in arms]
    with suppress(CapReachedError, ProviderError), JsonLinesWriter(folder / TRACE) as trace:  # the asker keeps why
        for arm, tally in zip(arms, tallies, strict=True):
            for stream in range(streams):
                _play(plan, arm, stream, asker, level, tally, trace, connect, tick_seconds, ended)
    return LiveResult(plan.name, asker.settings.model, level, streams, len(plan.episodes), tuple(tallies), asker)


def _play(
    plan: Plan,
    arm: Arm,
    stream: int,
    asker: Asker,
    level: Consumption,
    tally: ArmTally,
    trace: JsonLinesWriter,
    connect: Connect,
    tick_seconds: float | None,
    ended: Callable[[], None] | None,
) -> None:
    planner = LivePlanner(asker, name=asker.settings.model, level=level, arm=arm.name, stream=stream)

    when = conditions(plan.domain.policies)
    earlier = repetitions(plan)

    def watch(exchange: Exchange) -> None:
        if planner.last is not None:
            tally.add(exchange, planner.last)
            trace.write(live_call(exchange, planner.last, arm=arm.name, when=when, trial=earlier[exchange.episode]))
        if exchange.last and ended is not None:
            ended()

    def pace() -> int:
        last = planner.last
        return 0 if last is None else math.ceil((last.t_end - last.t_start) / 1e9 / (tick_seconds or 1.0))

    block = simulate_block(
        plan, arm=arm, model=planner, seed=0, first=stream, count=1, connect=connect, watch=watch,
        pace=None if tick_seconds is None else pace,
    )  # fmt: skip
    tally.whole_streams.append(stream)
    tally.counts["evictions"] += int(block.episode("evicted").sum())
    tally.counts["restamped"] += int(block.episode("restamped").sum())
    tally.counts["contract_failures"] += int(block.stream("contract_failures").sum())
