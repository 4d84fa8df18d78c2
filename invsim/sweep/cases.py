"""What a sweep is made of: a case, the parameters that can be varied, and the study that varies them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any, NamedTuple, TypeAlias

import msgspec

from invsim.client.arms import get_arm
from invsim.client.planners.models import load_model, model_source
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.errors import InputError, UnknownNameError
from invsim.experiment import ENGINES
from invsim.sim.compose import Setting
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import load_scenario
from invsim.whatif import SCHEDULES, planner, schedules
from invsim.world.wire import Level, Shape

Value: TypeAlias = str | int | float
"""Of a parameter."""

VERSION = version("invsim")

COMPOSED = "composed"
"""What stands for a composed setting where a scenario is named."""


@dataclass(frozen=True)
class Rates:
    """A planner of one behaviour in every class, see ``Behaviour``; ``p_stale`` is ``p_apply`` unless it is said."""

    p_apply: float = 1.0
    p_fresh: float = 0.0
    p_stale: float | None = None
    p_unaided: float = 0.0

    def model(self) -> ProbabilisticModel:
        """Return the compliance model."""
        return planner(self.p_apply, p_fresh=self.p_fresh, p_stale=self.p_stale, p_unaided=self.p_unaided)


KINDS: dict[str, type] = {
    "scenario": str, "model": str, "level": str, "seed": int,
    "p_apply": float, "p_fresh": float, "p_stale": float, "p_unaided": float,
    "episodes": int, "keys": int, "tables": int, "drift": float, "rows": int, "benign": float, "constrained": float,
    "shape": str,
}  # fmt: skip
"""Every parameter that can be varied, with the type of its values."""

_KINDS = {str: "a name", int: "a whole number", float: "a number"}

OF_RATES = frozenset(each.name for each in fields(Rates))
OF_SETTING = frozenset(each.name for each in fields(Setting))


@dataclass(frozen=True)
class Case:
    """One experiment.

    Parameters
    ----------
    scenario : str or Setting
        A name, the path of a TOML file, or a composed setting.
    model : str or Rates
        A name, the path of a TOML file, or a planner of a few rates.
    arms : tuple of str, optional
        The scenario's by default.
    level : str, optional
        Wire level; the scenario's by default, L6 for a composed setting.
    replications : int, optional
        Streams per arm, and per schedule of a composed setting.
    engine : str
        As in ``invsim.experiment.run``; "auto" is vector for a composed setting.
    draws : int, optional
        Of a fitted model from its posterior; 0 for its means. A composed setting takes the means.
    schedules : int
        Orders of tasks and drift that a composed setting is averaged over.
    seed : int
        The same for all cases of a study, unless it is varied, so that they meet common random numbers.
    """

    scenario: str | Setting = field(default_factory=Setting)
    model: str | Rates = field(default_factory=Rates)
    arms: tuple[str, ...] | None = None
    level: str | None = None
    replications: int | None = None
    engine: str = "auto"
    draws: int | None = None
    schedules: int = SCHEDULES
    seed: int = 1

    def at(self, point: Mapping[str, Value]) -> Case:
        """Return the case with some parameters set.

        Raises
        ------
        UnknownNameError
            For a parameter that there is none of.
        InputError
            For one that the case has no use for, such as the drift of a named scenario, or a value out of its range.
        """
        point = {name: _typed(name, value) for name, value in point.items()}
        found = self
        if "scenario" in point:
            named = str(point["scenario"])
            found = replace(found, scenario=Setting() if named == COMPOSED else named)
        if "model" in point:
            found = replace(found, model=str(point["model"]))
        if "level" in point:
            found = replace(found, level=str(point["level"]))
        if "seed" in point:
            found = replace(found, seed=int(point["seed"]))
        if setting := {name: value for name, value in point.items() if name in OF_SETTING}:
            found = replace(found, scenario=_set(found.scenario, setting))
        if rates := {name: float(value) for name, value in point.items() if name in OF_RATES}:
            if not isinstance(found.model, Rates):
                what = f"{next(iter(rates))} is of a planner of rates, and the model is named"
                raise InputError(what, value=found.model)
            found = replace(found, model=replace(found.model, **rates))
        return found

    def plans(self) -> tuple[Plan, ...]:
        """Return what is run: one plan of a named scenario, one for each schedule of a composed setting."""
        level = None if self.level is None else Level.parse(self.level, where="level")
        if isinstance(self.scenario, Setting):
            return schedules(self.scenario, number=self.schedules, seed=self.seed, level=level or Level.L6)
        return (compile_plan(load_scenario(self.scenario), level=level),)

    def compliance(self) -> ProbabilisticModel:
        """Return the compliance model."""
        return self.model.model() if isinstance(self.model, Rates) else load_model(self.model)

    def check(self) -> None:
        """Raise an ``InputError`` for whatever can be seen to be wrong before anything is run."""
        for name in self.arms or ():
            get_arm(name, where="arms")
        if self.engine not in ENGINES:
            raise UnknownNameError("engine", self.engine, ENGINES)
        for name, least in (("replications", 1), ("draws", 0), ("schedules", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} must be {least} or more", value=value)
        if self.engine == "exact" and self.replications is not None:
            raise InputError("the exact engine samples no streams to number", value=self.replications)
        model = self.compliance()
        if self.draws and not model.uncertainty:
            raise InputError("draws are of a fitted model, one with a posterior to draw from", value=model.name)
        if isinstance(self.scenario, Setting) and model.uncertainty and self.draws != 0:
            what = "a composed setting does not carry the uncertainty of a fitted model: draws 0 takes its means"
            raise InputError(what, value=model.name)
        if not isinstance(self.scenario, Setting):
            self.plans()

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return dict(msgspec.to_builtins(asdict(self)))

    @cached_property
    def key(self) -> str:
        """What tells its result from any other: a hash of all that goes in, files and version included."""
        texts = [VERSION, msgspec.json.encode(self.to_dict(), order="deterministic").decode()]
        if not isinstance(self.scenario, Setting):
            plan = self.plans()[0]
            texts += [load_scenario(self.scenario).source.text, plan.domain.source.text if plan.domain.source else ""]
        if not isinstance(self.model, Rates):
            texts.append(model_source(self.model).text)
        return hashlib.sha256(msgspec.json.encode(texts)).hexdigest()[:24]


def _typed(name: str, value: Value) -> Value:
    """Return a value as its parameter has it, so that 0 and 0.0 are one."""
    if name not in KINDS:
        raise UnknownNameError("parameter", name, KINDS)
    kind = KINDS[name]
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise InputError(f"{name} takes {_KINDS[kind]}", value=value)
    return kind(value)  # type: ignore[no-any-return]


def _set(scenario: str | Setting, values: Mapping[str, Value]) -> Setting:
    if not isinstance(scenario, Setting):
        what = f"{next(iter(values))} is of a composed setting, and the scenario is named; {COMPOSED!r} composes one"
        raise InputError(what, value=scenario)
    if (shape := values.get("shape")) is not None and shape not in list(Shape):
        raise UnknownNameError("hint shape", shape, [str(each) for each in Shape])
    typed: dict[str, Any] = {**values, **({} if shape is None else {"shape": Shape(shape)})}
    return replace(scenario, **typed)


class Cell(NamedTuple):
    """A point of a grid, and the case that stands there."""

    point: dict[str, Value]
    case: Case

    @property
    def place(self) -> str:
        """The point in words."""
        return ", ".join(f"{name} {value}" for name, value in self.point.items())


@dataclass(frozen=True)
class Study:
    """A base case, and the parameters that are varied: every value of one with every value of the others.

    Parameters
    ----------
    base : Case
    vary : mapping of str to sequence
        Values by parameter, see ``KINDS``; the last one varies fastest. None of them: the base alone.
    """

    base: Case
    vary: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {"base": self.base.to_dict(), "vary": {name: list(values) for name, values in self.vary.items()}}

    def cells(self) -> list[Cell]:
        """Return every cell of the grid, in order.

        Raises
        ------
        InputError, UnknownNameError
            See ``Case.at`` and ``Case.check``.
        """
        for name, values in self.vary.items():
            if not values:
                raise InputError(f"{name} has no value to take")
            if len(set(values)) < len(values):
                raise InputError(f"{name} has a value twice", value=list(values))
        found = []
        for values in itertools.product(*self.vary.values()):
            point = dict(zip(self.vary, values, strict=True))
            case = self.base.at(point)
            case.check()
            found.append(Cell(point, case))
        return found
