"""The engine on arrays: which arms and models it knows, and how to run them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from invsim.client.arms import Arm, get_arm
from invsim.client.planners.base import ComplianceModel
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.sim.facts import Facts, NotTabularError
from invsim.sim.result import Block
from invsim.sim.scenario import MAX_ATTEMPTS
from invsim.sim.vector.append import AppendProgram, compile_append, play_append
from invsim.sim.vector.arms import TRAITS, Traits
from invsim.sim.vector.compiler import compile_arm
from invsim.sim.vector.decisions import Counts, Drawn, coding, draw, follow
from invsim.sim.vector.outcomes import Outcomes
from invsim.sim.vector.play import play
from invsim.sim.vector.program import Program


def supports(arm: Arm, model: ComplianceModel) -> bool:
    """Return whether this engine can run an arm and a model: the nine shipped arms, and models that are rates."""
    return _known(arm) and type(model) is ProbabilisticModel


def _known(arm: Arm) -> bool:
    return arm.name in TRAITS and arm == get_arm(arm.name)


class VectorEngine:
    """The engine on one plan and one model. It keeps what it has worked out of an arm, and room to draw in.

    One engine is for one thread at a time; what it returns is the caller's.

    Parameters
    ----------
    facts : Facts
    model : ComplianceModel

    Raises
    ------
    NotTabularError
        For a model that is not a ``ProbabilisticModel`` itself: a subclass may decide otherwise.

    Examples
    --------
    Arms share the draws of a chunk of streams. A total is an array, or a number where the streams do not differ:

    >>> from invsim.client.arms import A0, A2D
    >>> from invsim.client.planners import load_model
    >>> from invsim.sim.facts import tabulate
    >>> from invsim.sim.plan import compile_plan
    >>> from invsim.sim.scenario import load_scenario
    >>> plan = compile_plan(load_scenario("payments"))
    >>> engine = VectorEngine(tabulate(plan), load_model("compliant"))
    >>> drawn = engine.draw(seed=1, first=0, count=10_000)
    >>> [engine.play(arm, drawn).total("attempts", plan.eligible) for arm in (A0, A2D)]
    [18, 9]
    """

    def __init__(self, facts: Facts, model: ComplianceModel) -> None:
        if type(model) is not ProbabilisticModel:
            what = f"model {model.name!r} decides by code of its own, not by rates"
            raise NotTabularError(f"{what}; only --engine simpy can run it")
        tasks = facts.plan.episodes
        self.facts = facts
        self.rates = tuple(model.behaviour(task.constraint, task.shape) for task in tasks)
        self.codings = tuple(map(coding, facts.episodes, self.rates))
        self._alone = [
            follow(*about).table(lambda outcome: outcome.attempts).astype(np.uint8)
            for about in zip(facts.episodes, self.rates, self.codings, strict=True)
        ]
        self._programs: dict[str, Program | AppendProgram] = {}
        self._scratch = np.empty(0)

    def draw(self, *, seed: int, first: int, count: int) -> Drawn:
        """Draw ``count`` streams from stream ``first`` on; any arm can play them."""
        if len(self._scratch) < count * self.facts.plan.slots:
            self._scratch = np.empty(count * self.facts.plan.slots)
        return draw(self.codings, seed=seed, first=first, count=count, scratch=self._scratch)

    def play(self, arm: Arm, drawn: Drawn) -> Outcomes:
        """Return what becomes of the streams drawn under an arm.

        Raises
        ------
        NotTabularError
            For an arm that is not one of the nine shipped.
        """
        self.prepare([arm])
        program = self._programs[arm.name]
        return play_append(program, drawn) if isinstance(program, AppendProgram) else play(program, drawn)

    def attempts_without_memory(self, drawn: Drawn) -> Counts:
        """Return the attempts that the streams drawn make in arm A0, shape (streams,), at less cost than ``play``."""
        total = np.zeros(drawn.count, dtype=np.min_scalar_type(MAX_ATTEMPTS * len(self._alone)))
        for attempts, cells in zip(self._alone, drawn.cells, strict=True):
            total += attempts[0] if cells is None else attempts.take(cells)
        return total

    def prepare(self, arms: Iterable[Arm]) -> None:
        """Work out what is the same for all streams; ``play`` would do it on first use."""
        for arm in arms:
            if not _known(arm):
                what = f"arm {arm.name!r} is not one of {', '.join(TRAITS)} as shipped"
                raise NotTabularError(f"{what}; only --engine simpy can run it")
            if arm.name not in self._programs:
                self._programs[arm.name] = self._compiled(TRAITS[arm.name])

    def _compiled(self, traits: Traits) -> Program | AppendProgram:
        if traits.appends:
            return compile_append(self.facts, self.rates, self.codings)
        return compile_arm(self.facts, traits, self.rates, self.codings)


def simulate_block(facts: Facts, *, arm: Arm, model: ComplianceModel, seed: int, first: int, count: int) -> Block:
    """Simulate ``count`` streams from stream ``first`` on, as ``engine.simulate_block`` does on the plan.

    Parameters
    ----------
    facts : Facts
        The plan, tabulated.
    arm : Arm
    model : ComplianceModel
    seed : int
    first, count : int

    Returns
    -------
    Block

    Raises
    ------
    NotTabularError
        For an arm or a model that ``supports`` refuses.
    """
    engine = VectorEngine(facts, model)
    return engine.play(arm, engine.draw(seed=seed, first=first, count=count)).block()
