"""The compliance preflight: tens of calls with fixes known to be right, before a memory is built for a model.

Wu and Canedo (2026), section 6.1, recommend one and give no procedure; this is ours. A *cell* is a hint shape at a
consumption level, or a hint shape without memory. Every round puts one more case to each cell that is not decided; a
cell is decided once its interval lies on one side of ``LINE`` or is narrow. The interval is a confidence sequence, so
stopping by it costs nothing: in each cell the chance that it ever leaves out the true rate is 5% at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from invsim.client.planners.base import Injected, NoCall, Situation
from invsim.client.planners.probabilistic import MAX_RETRIES
from invsim.client.prompt import Consumption
from invsim.errors import InputError
from invsim.live.ask import Asker
from invsim.live.budget import CapReachedError
from invsim.live.calls import live_call
from invsim.live.cases import Case, case
from invsim.live.completion import ProviderError
from invsim.live.planner import LivePlanner
from invsim.live.tally import carries_fix, strayed
from invsim.record import conditions
from invsim.sim.engine import unheard
from invsim.sim.exchange import Exchange
from invsim.stats.anytime import confidence_sequence
from invsim.traces.trials import EXHAUSTED
from invsim.traces.writing import JsonLinesWriter
from invsim.world.wire import Request, Response, Shape

LINE = 0.5
"""A planner applies a shape, or solves it unaided, where its rate is known to be above this; below, it does not."""

WIDTH = 0.4
"""An interval this narrow is enough, on whichever side of the line."""

LIMIT = "limit"
"""Warning on the last row of an episode that the preflight itself ended."""

MOST = 30
"""Cases of a cell at most."""

RECOVERIES = 2
"""Cases without memory, of each shape, that are gone on with to the end: they give the retry law."""


@dataclass
class Cell:
    """A rate under measurement.

    Parameters
    ----------
    shape : Shape
    level : Consumption
    injected : bool
        Whether a valid fix is injected; without one the rate is that of solving unaided.
    applied, of : int
        First tries that succeeded, the task still being the task's, of first tries.
    unfit : int
        First tries that held no request.
    strayed : int
        First tries that the server accepted and that were not the task's request: they count as failed.
    carried : int
        First tries that held the injected fix, whatever came of them.
    """

    shape: Shape
    level: Consumption
    injected: bool
    applied: int = 0
    of: int = 0
    unfit: int = 0
    strayed: int = 0
    carried: int = 0

    @property
    def name(self) -> str:
        """What the cell is called in the journal and the trace."""
        return f"preflight {self.level} {self.shape} {'valid' if self.injected else 'nothing'}"

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence sequence at this number of cases."""
        return confidence_sequence(self.applied, self.of).pair()

    @property
    def decided(self) -> str | None:
        """Return "yes" above the line, "no" below it, "narrow" on it, "undecided" at the most cases; else None."""
        lo, hi = self.interval
        if lo > LINE or hi < LINE:
            return "yes" if lo > LINE else "no"
        if hi - lo <= WIDTH:
            return "narrow"
        return "undecided" if self.of >= MOST else None

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "shape": str(self.shape),
            "consumption": str(self.level),
            "injected": "valid" if self.injected else "nothing",
            "applied": self.applied,
            "of": self.of,
            "no_request": self.unfit,
            "strayed": self.strayed,
            "carried": self.carried,
            "rate": self.applied / self.of if self.of else None,
            "interval": list(self.interval),
            "decided": self.decided,
        }


@dataclass
class Measured:
    """What the calls of a preflight showed.

    Parameters
    ----------
    cells : list of Cell
    level : Consumption
        The one that cases without memory and the verdict are at.
    recovered : list of int
        Episodes without memory that recovered at the k-th retry, k = 1..4.
    exhausted : int
        Episodes that never did.
    asker : Asker
    """

    cells: list[Cell]
    level: Consumption
    asker: Asker
    recovered: list[int] = field(default_factory=lambda: [0] * MAX_RETRIES)
    exhausted: int = 0

    def cell(self, shape: Shape, *, injected: bool) -> Cell | None:
        """Return the cell of a shape at the verdict's level."""
        mine = (each for each in self.cells if each.shape is shape and each.level is self.level)
        return next((each for each in mine if each.injected is injected), None)

    @property
    def cases(self) -> int:
        """Cases that were answered, over all cells."""
        return sum(each.of for each in self.cells)

    @property
    def identity(self) -> str:
        """What the served model's name says, over all calls: the worst of "same", "snapshot", "unknown", "other"."""
        found = {how for _, how in self.asker.served}
        return next((each for each in ("other", "unknown", "snapshot", "same") if each in found), "unknown")


def measure(
    asker: Asker,
    *,
    shapes: Sequence[Shape],
    levels: Sequence[Consumption],
    seed: int,
    folder: Path,
    asked: Callable[[], None] | None = None,
) -> Measured:
    """Put cases to a model until every cell is decided, or a cap or the provider ends it.

    Parameters
    ----------
    asker : Asker
    shapes : sequence of Shape
    levels : sequence of Consumption
        The last is the one that the verdict is for.
    seed : int
        Draws the cases; every level meets the same ones.
    folder : Path
        For the trace.
    asked : callable, optional
        Called after every case.
    """
    if not shapes or not levels:
        raise InputError("a preflight needs a hint shape and a consumption level")
    folder.mkdir(parents=True, exist_ok=True)
    cells = [Cell(shape, level, True) for level in levels for shape in shapes]
    cells += [Cell(shape, levels[-1], False) for shape in shapes]
    found = Measured(cells, levels[-1], asker)
    with suppress(CapReachedError, ProviderError), JsonLinesWriter(folder / "trace.jsonl") as trace:  # asker keeps why
        while waiting := [each for each in cells if each.decided is None]:
            for cell in waiting:
                _put(cell, case(cell.shape, cell.of, seed=seed), found, trace)
                if asked is not None:
                    asked()
    return found


def _put(cell: Cell, given: Case, found: Measured, trace: JsonLinesWriter) -> None:
    goes_on = not cell.injected and cell.of < RECOVERIES
    for exchange in _episode(cell, given, found.asker, trace, MAX_RETRIES if goes_on else 0):
        strays = strayed(exchange, given.world.policies)
        done = exchange.response.ok and not strays
        if exchange.attempt == 1:
            cell.of += 1
            cell.applied += done
            cell.unfit += exchange.request is None
            cell.strayed += strays
            cell.carried += cell.injected and carries_fix(exchange)
        elif done:
            found.recovered[exchange.attempt - 2] += 1
        elif exchange.last and not strays:
            found.exhausted += 1


def _episode(cell: Cell, given: Case, asker: Asker, trace: JsonLinesWriter, retries: int) -> Iterator[Exchange]:
    """Play one case, its first try and up to ``retries`` more until it succeeds."""
    task, world = given.task, given.world
    entries = (given.entry,) if cell.injected else ()
    injected = Injected.VALID if cell.injected else Injected.NOTHING
    planner = LivePlanner(asker, name=asker.settings.model, level=cell.level, arm=cell.name, stream=cell.of)
    stream, response = cell.of, Response(ok=False)
    for attempt in range(1, retries + 2):
        situation = Situation(
            0, task.constraint, task.shape, injected, attempt, True, task.request, entries,
            response if attempt > 1 else None,
        )  # fmt: skip
        action = planner.decide(situation, 0.0)
        request = action if isinstance(action, Request) else None
        response = unheard(action) if isinstance(action, NoCall) else world.evaluate(request or task.request)
        last = response.ok or attempt == retries + 1
        exchange = Exchange(
            stream, 0, attempt, 0, task, injected, entries, (True,) * len(entries), action, request, response, last
        )
        if planner.last is not None:
            call = live_call(exchange, planner.last, arm=cell.name, when=conditions(world.policies))
            if retries < MAX_RETRIES:  # an episode that is gone on with no further has not exhausted its attempts
                said = tuple(LIMIT if each == EXHAUSTED else each for each in call.warnings)
                call = msgspec.structs.replace(call, warnings=said)
            trace.write(call)
        yield exchange
        if last:
            return
