"""The engine on arrays: which arms and models it knows, and how to run them."""

from __future__ import annotations

from invsim.client.arms import Arm, get_arm
from invsim.client.planners.base import ComplianceModel
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.sim.facts import Facts, NotTabularError
from invsim.sim.result import Block
from invsim.sim.vector.append import AppendProgram, compile_append, play_append
from invsim.sim.vector.arms import TRAITS, compile_arm
from invsim.sim.vector.decisions import Drawn, coding, draw
from invsim.sim.vector.outcomes import Outcomes
from invsim.sim.vector.play import play
from invsim.sim.vector.program import Program


def supports(arm: Arm, model: ComplianceModel) -> bool:
    """Return whether this engine can run an arm and a model: the nine shipped arms, and models that are rates."""
    known = arm.name in TRAITS and arm == get_arm(arm.name)
    return known and type(model) is ProbabilisticModel


class VectorEngine:
    """The engine on one plan and one model. It keeps what it has worked out of an arm; it is not changed by use.

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
    Arms of a chunk of streams share its draws:

    >>> from invsim.client.arms import A0, A1
    >>> from invsim.client.planners import load_model
    >>> from invsim.sim.facts import tabulate
    >>> from invsim.sim.plan import compile_plan
    >>> from invsim.sim.scenario import load_scenario
    >>> plan = compile_plan(load_scenario("payments"))
    >>> engine = VectorEngine(tabulate(plan), load_model("compliant"))
    >>> drawn = engine.draw(seed=1, first=0, count=10_000)
    >>> [int(engine.play(arm, drawn).total("attempts", plan.eligible).max()) for arm in (A0, A1)]
    [14, 8]
    """

    def __init__(self, facts: Facts, model: ComplianceModel) -> None:
        if type(model) is not ProbabilisticModel:
            what = f"model {model.name!r} decides by code of its own, not by rates"
            raise NotTabularError(f"{what}; only --engine simpy can run it")
        tasks = facts.plan.episodes
        self.facts = facts
        self.rates = tuple(model.behaviour(task.constraint, task.shape) for task in tasks)
        self.codings = tuple(map(coding, facts.episodes, self.rates))
        self._programs: dict[str, Program | AppendProgram] = {}

    def draw(self, *, seed: int, first: int, count: int) -> Drawn:
        """Draw ``count`` streams from stream ``first`` on; any arm can play them."""
        return draw(self.codings, seed=seed, first=first, count=count)

    def play(self, arm: Arm, drawn: Drawn) -> Outcomes:
        """Return what becomes of the streams drawn under an arm.

        Raises
        ------
        NotTabularError
            For an arm that is not one of the nine shipped.
        """
        program = self._program(arm)
        return play_append(program, drawn) if isinstance(program, AppendProgram) else play(program, drawn)

    def _program(self, arm: Arm) -> Program | AppendProgram:
        if arm.name not in TRAITS or arm != get_arm(arm.name):
            what = f"arm {arm.name!r} is not one of the {len(TRAITS)} that are known as tables ({', '.join(TRAITS)})"
            raise NotTabularError(f"{what}; only --engine simpy can run it")
        if arm.name not in self._programs:
            traits = TRAITS[arm.name]
            self._programs[arm.name] = (
                compile_append(self.facts, self.rates, self.codings)
                if traits.appends
                else compile_arm(self.facts, traits, self.rates, self.codings)
            )
        return self._programs[arm.name]


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
