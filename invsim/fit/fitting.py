"""A fit: everything a tally says of how models comply, and what it does not say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from invsim.errors import InputError, UnknownNameError
from invsim.fit.estimates import Key, Rate, by_parameter, correlation, estimate, worth_of
from invsim.fit.evidence import CELLS, EXHAUSTED, LAWS, MISSING, RATES, Evidence, gather
from invsim.fit.frames import TallyLike
from invsim.stats.arrays import tail
from invsim.stats.design import design_effect, intra_cluster_correlation

CLUSTERS = ("task", "none")


@dataclass(frozen=True)
class Law:
    """The retries of one cell.

    Parameters
    ----------
    key : tuple of str
    parameter : str
        "retry", after a first try without a fix; "retry_injected", with one.
    counts : tuple of int
        Episodes that recovered at retry 1, 2, 3, 4.
    exhausted : int
        Episodes that did not recover: exhausted, given up, or recovered after more than four retries.
    worth : float
        Independent episodes that they are worth.
    status, reason : str
        As in ``Rate``.
    """

    key: Key
    parameter: str
    counts: tuple[int, ...] = (0, 0, 0, 0)
    exhausted: int = 0
    worth: float = 0.0
    status: str = "ok"
    reason: str = ""

    @property
    def episodes(self) -> int:
        """Failed first tries."""
        return sum(self.counts) + self.exhausted


@dataclass(frozen=True)
class Fit:
    """What was fitted.

    Parameters
    ----------
    by : tuple of str
        What tells cells apart.
    confidence : float
        Of every interval.
    pooled : bool
    loose : bool
    rates : tuple of Rate
        All parameters of all cells of the grid.
    laws : tuple of Law
    correlation : dict of parameter to float or None
        Of two trials of one task; None where nothing tells.
    arms : int
        Most arms of one seed, which may repeat each other's trials.
    left_out : dict of reason to int
        Trials, and episodes where the reason says so, that no estimate rests on.
    """

    by: tuple[str, ...]
    confidence: float
    pooled: bool
    loose: bool
    rates: tuple[Rate, ...]
    laws: tuple[Law, ...]
    correlation: dict[str, float | None]
    arms: int
    left_out: dict[str, int]

    @cached_property
    def _rates(self) -> dict[tuple[str, ...], Rate]:
        return {(each.parameter, *each.key): each for each in self.rates}

    @cached_property
    def _laws(self) -> dict[tuple[str, ...], Law]:
        return {(each.parameter, *each.key): each for each in self.laws}

    @property
    def cells(self) -> tuple[Rate, ...]:
        """Rates of trials, of first attempts and of recoveries apart, those without data too."""
        return tuple(each for each in self.rates if each.parameter in CELLS)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models, in order."""
        at = self.by.index("model")
        return tuple(dict.fromkeys(each.key[at] for each in self.rates))

    @property
    def identified(self) -> bool:
        """Whether there is anything that the tally tells."""
        return "ok" in {each.status for each in self.rates} | {each.status for each in self.laws}

    def rate(self, parameter: str, *key: str) -> Rate:
        """Return one rate of one cell."""
        found = self._rates.get((parameter, *key))
        if found is None:
            raise UnknownNameError("rate of this fit", " ".join((parameter, *key)), map(" ".join, self._rates))
        return found

    def law(self, parameter: str, *key: str) -> Law:
        """Return one retry law of one cell."""
        found = self._laws.get((parameter, *key))
        if found is None:
            raise UnknownNameError("retry law of this fit", " ".join((parameter, *key)), map(" ".join, self._laws))
        return found

    def models(self) -> dict[str, str]:
        """Return the text of a model file for every model."""
        from invsim.fit.modelfile import model_text

        return {name: model_text(self, name) for name in self.model_names}


def fit(
    tally: TallyLike,
    *,
    by: Sequence[str] = ("model", "shape"),
    cluster: str = "task",
    pool: bool = True,
    loose: bool = False,
    confidence: float = 0.95,
) -> Fit:
    """Estimate how models comply from counts of trials and of episodes. Nothing here is drawn at random.

    Parameters
    ----------
    tally : TallyLike
        The frames ``trials`` and ``episodes``.
    by : sequence of str
        "model", and any of "shape", "constraint" and "arm" that the tally has: cells.
    cluster : "task" or "none"
        What is independent. With tasks, trials count in the posteriors as many as they are worth: the correlation
        within tasks is one for all cells of a parameter, since a single cell's few tasks hardly tell.
    pool : bool
        Learn a cell from the same cell of the other models: beta-binomial, see ``invsim.stats.pooling``.
    loose : bool
        Count a value of another type that reads the same, "10" for 10, as applied.
    confidence : float
        In (0, 1).

    Returns
    -------
    Fit

    Raises
    ------
    InputError
        A column that cannot be gone by, a cluster of another name, a confidence out of range, or an empty tally.

    Notes
    -----
    p_apply is the share applied of the trials of an injected fix that was right; p_stale that of a fix no longer right
    and injected alone, which fails when it is applied, so that only a trial and never an episode tells. p_fresh and
    p_unaided are first tries of episodes, with stale and valid injected side by side and with nothing. An episode that
    is told nothing takes the shape of its class, or else of its task. The retry law counts failed first tries by the
    retry that recovered.

    Arms of one simulated run meet the same random numbers, so that one may repeat the trials of another. Trials count
    as many as they then are worth, at the least; see ``invsim.stats.design.unrepeated``.
    """
    tail(confidence)
    if cluster not in CLUSTERS:
        raise UnknownNameError("cluster", cluster, CLUSTERS)
    evidence = gather(tally, by=tuple(by), loose=loose)
    if not evidence.keys:
        left = ", ".join(f"{reason} {n}" for reason, n in evidence.left_out.items())
        raise InputError(f"there is no trial to fit{': all were left out: ' if left else ''}{left}")
    counts = by_parameter(evidence)
    alike = {name: correlation(each) for name, each in counts.items()} if cluster == "task" else {}
    rates: list[Rate] = []
    for name in RATES:
        mine = counts.get(name, {})
        rates += estimate(evidence, name, mine, pooled=pool, confidence=confidence, correlation=alike.get(name))
    return Fit(
        by=evidence.by,
        confidence=confidence,
        pooled=pool,
        loose=loose,
        rates=tuple(rates),
        laws=tuple(each for parameter in LAWS for each in _laws(evidence, parameter, clustered=cluster == "task")),
        correlation=alike,
        arms=evidence.arms,
        left_out=evidence.left_out,
    )


def _laws(evidence: Evidence, parameter: str, *, clustered: bool) -> list[Law]:
    cells: dict[Key, dict[str | None, _Episodes]] = {}
    for *cell, name, task, seed, within, outcome, n in evidence.laws.iter_rows():
        if name == parameter and n:
            cells.setdefault(tuple(cell), {}).setdefault(task, _Episodes()).add(seed, within, outcome, n)
    # Whether the first retry recovers stands for the law where tasks are alike.
    rows = [
        (min(each.counts[0] * each.worth / sum(each.counts), each.worth), each.worth, at)
        for at, tasks in enumerate(cells.values())
        if None not in tasks
        for each in tasks.values()
    ]
    first, total, which = zip(*rows, strict=True) if rows else ((), (), ())
    alike = (intra_cluster_correlation(first, total, which) or 0.0) if clustered else 0.0
    found = []
    for key in evidence.keys:
        tasks = cells.get(key)
        if tasks is None:
            why = evidence.why.get((key, parameter), MISSING[parameter])
            found.append(Law(key, parameter, status="unidentified", reason=why))
            continue
        summed = [sum(each) for each in zip(*(each.counts for each in tasks.values()), strict=True)]
        worths = [each.worth for each in tasks.values()]
        effect = 1.0 if None in tasks else design_effect(worths, alike)
        found.append(Law(key, parameter, tuple(summed[:-1]), summed[-1], sum(worths) / effect))
    return found


class _Episodes:
    """Failed first tries of one task: by outcome, and by the run that each is of."""

    def __init__(self) -> None:
        self.counts = [0] * EXHAUSTED
        self._runs: Counter[tuple[str | None, str | None]] = Counter()

    def add(self, seed: str | None, within: str | None, outcome: int, n: int) -> None:
        self.counts[outcome - 1] += n
        self._runs[seed, within] += n

    @property
    def worth(self) -> float:
        return worth_of((seed, n) for (seed, _), n in self._runs.items())
