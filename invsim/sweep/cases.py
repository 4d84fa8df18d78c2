"""What a sweep is made of: a case, the parameters that can be varied, and the study that varies them."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from invsim.client.arms import SHIPPED, arm_names, get_arm
from invsim.client.planners.models import load_model, model_source, parse_model
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.errors import InputError, UnknownNameError
from invsim.experiment import ENGINES
from invsim.located import Source
from invsim.sim.compose import Setting
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import load_scenario, parse_scenario
from invsim.whatif import SCHEDULES, planner, schedules
from invsim.world.domain import domain_source, parse_domain
from invsim.world.wire import Level, Shape

Value: TypeAlias = str | int | float
"""Of a parameter."""

VERSION = version("invsim")

COMPOSED = "composed"
"""What stands for a composed setting where a scenario is named."""

LARGEST_SEED = 2**63 - 1
"""What a column of whole numbers holds."""

MOST_CELLS = 100_000
"""Of a study."""


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


class Sources(NamedTuple):
    """The texts behind a case's names: who works it out reads no file, and what changes later changes nothing.

    Empty where there is none: the scenario of a composed setting, the model of rates. The domain is None where it is
    registered in Python.
    """

    scenario: Source
    domain: Source | None
    model: Source


NOTHING = Source("", "")

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
        The same for all cases of a study, unless it is varied, so that they meet common random numbers. The schedules
        of a composed setting have this seed and those that follow: vary it in steps of ``schedules``, or two cases
        share some.
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
            setting = found.scenario if isinstance(found.scenario, Setting) else Setting()
            found = replace(found, scenario=setting if named == COMPOSED else named)
        if "model" in point:
            found = replace(found, model=str(point["model"]))
        if "level" in point:
            found = replace(found, level=str(point["level"]))
        if "seed" in point:
            found = replace(found, seed=int(point["seed"]))
        if composed := {name: value for name, value in point.items() if name in OF_SETTING}:
            found = replace(found, scenario=_set(found.scenario, composed))
        if rates := {name: float(value) for name, value in point.items() if name in OF_RATES}:
            if not isinstance(found.model, Rates):
                what = f"{next(iter(rates))} is of a planner of rates, and the model is named"
                raise InputError(what, value=found.model)
            found = replace(found, model=replace(found.model, **rates))
        return found

    def sources(self) -> Sources:
        """Return the texts behind the names, read now; an unknown name or a file with a mistake is an error."""
        return _Files().of(self)

    def plans(self, sources: Sources) -> tuple[Plan, ...]:
        """Return what is run: one plan of a named scenario, one for each schedule of a composed setting."""
        if isinstance(self.scenario, Setting):
            level = Level.L6 if self.level is None else Level.parse(self.level, where="level")
            return schedules(self.scenario, number=self.schedules, seed=self.seed, level=level)
        return (_plan(sources.scenario, sources.domain, self.level),)

    def compliance(self, sources: Sources) -> ProbabilisticModel:
        """Return the compliance model."""
        return self.model.model() if isinstance(self.model, Rates) else parse_model(sources.model)

    def check(self) -> None:
        """Raise an ``InputError`` for whatever can be seen to be wrong without reading a file."""
        if not isinstance(self.scenario, str | Setting):
            raise InputError("scenario takes a name, the path of a TOML file, or a Setting", value=self.scenario)
        if not isinstance(self.model, str | Rates):
            raise InputError("model takes a name, the path of a TOML file, or Rates", value=self.model)
        if isinstance(self.model, Rates):
            self.model.model()
        if isinstance(self.arms, str):
            raise InputError("arms takes names, not one text", value=self.arms)
        if self.arms is not None and len(self.arms) == 0:
            raise InputError("arms names no arm")
        for name in self.arms or ():
            get_arm(name, where="arms")
        if self.level is not None:
            Level.parse(self.level, where="level")
        if self.engine not in ENGINES:
            raise UnknownNameError("engine", self.engine, ENGINES)
        for name, least in (("replications", 1), ("draws", 0), ("schedules", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} must be {least} or more", value=value)
        if self.seed > LARGEST_SEED:
            raise InputError(f"seed must be {LARGEST_SEED} or less", value=self.seed)
        if self.engine == "exact" and self.replications is not None:
            raise InputError("the exact engine samples no streams to number", value=self.replications)

    def key(self, sources: Sources) -> str | None:
        """Return what tells its result from any other: a hash of all that goes in, texts and version included.

        None where an arm or the domain is registered in Python: what such code does cannot be told from its name.
        """
        if sources.domain is None or not SHIPPED.issuperset(self._arms(sources)):
            return None
        texts = [VERSION, msgspec.json.encode(self.to_dict(), order="deterministic").decode()]
        texts += [source.text for source in (sources.scenario, sources.domain, sources.model)]
        return hashlib.sha256(msgspec.json.encode(texts)).hexdigest()[:24]

    def _arms(self, sources: Sources) -> Iterable[str]:
        if self.arms is not None:
            return self.arms
        composed = isinstance(self.scenario, Setting)
        return arm_names() if composed else parse_scenario(sources.scenario).manifest.arms

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return dict(msgspec.to_builtins(asdict(self), enc_hook=_plain))


def _plan(scenario: Source, domain: Source | None, level: str | None) -> Plan:
    return compile_plan(
        parse_scenario(scenario),
        level=None if level is None else Level.parse(level, where="level"),
        domain=None if domain is None else parse_domain(domain),
    )


class _Files:
    """Files read once, and what they hold checked once, so that all cells of a study meet the same texts."""

    def __init__(self) -> None:
        self._scenario, self._model = cache(_scenario_sources), cache(_checked_model)
        self.plan, self.model = cache(_plan), cache(parse_model)

    def of(self, case: Case) -> Sources:
        scenario, domain = (NOTHING, NOTHING) if isinstance(case.scenario, Setting) else self._scenario(case.scenario)
        return Sources(scenario, domain, NOTHING if isinstance(case.model, Rates) else self._model(case.model))


def _scenario_sources(name: str) -> tuple[Source, Source | None]:
    scenario = load_scenario(name)
    return scenario.source, domain_source(scenario.manifest.domain, beside=scenario.beside)


def _checked_model(name: str) -> Source:
    load_model(name)
    return model_source(name)


def _plain(value: object) -> object:
    """Return a NumPy scalar as the number or text that it is."""
    return value.item() if isinstance(value, np.generic) else value


def _typed(name: str, value: object) -> Value:
    """Return a value as its parameter has it, so that 0, -0.0 and NumPy's 0 are one."""
    if name not in KINDS:
        raise UnknownNameError("parameter", name, KINDS)
    kind, value = KINDS[name], _plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise InputError(f"{name} takes {_KINDS[kind]}", value=value)
    return float(value) + 0.0 if kind is float else kind(value)  # type: ignore[arg-type]


def _set(scenario: str | Setting, values: Mapping[str, Value]) -> Setting:
    if not isinstance(scenario, Setting):
        what = f"{next(iter(values))} is of a composed setting, and the scenario is named; {COMPOSED!r} composes one"
        raise InputError(what, value=scenario)
    if (shape := values.get("shape")) is not None and shape not in list(Shape):
        raise UnknownNameError("hint shape", shape, [str(each) for each in Shape])
    typed: dict[str, Any] = {**values, **({} if shape is None else {"shape": Shape(shape)})}
    return replace(scenario, **typed)


@dataclass(frozen=True)
class Cell:
    """A point of a grid, the case that stands there, and the texts behind its names."""

    point: dict[str, Value]
    case: Case
    sources: Sources = field(repr=False)

    @property
    def place(self) -> str:
        """The point in words."""
        return ", ".join(f"{name} {value}" for name, value in self.point.items())

    @cached_property
    def key(self) -> str | None:
        """See ``Case.key``."""
        return self.case.key(self.sources)


@dataclass(frozen=True)
class Study:
    """A base case, and the parameters that are varied: every value of one with every value of the others.

    Parameters
    ----------
    base : Case
    vary : mapping of str to sequence
        Values by parameter, see ``KINDS``; the last one varies fastest. None of them: the base alone. NumPy arrays and
        generators do as well.
    fixed : mapping of str to value
        Parameters set in every cell, together with those varied.
    """

    base: Case
    vary: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    fixed: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        axes = {name: _axis(name, values) for name, values in self.vary.items()}
        fixed = {name: _typed(name, value) for name, value in self.fixed.items()}
        for name in fixed.keys() & axes.keys():
            raise InputError("is set and varied too", value=name)
        object.__setattr__(self, "vary", axes)
        object.__setattr__(self, "fixed", fixed)

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        vary = {name: list(values) for name, values in self.vary.items()}
        return {"base": self.base.to_dict(), "set": dict(self.fixed), "vary": vary}

    def cells(self) -> list[Cell]:
        """Return every cell of the grid, in order.

        Raises
        ------
        InputError, UnknownNameError
            For whatever can be seen to be wrong before anything is run.
        """
        if (count := math.prod(len(values) for values in self.vary.values())) > MOST_CELLS:
            raise InputError(f"a study has at most {MOST_CELLS:,} cells", value=count)
        files = _Files()
        found = []
        uncertain = False
        for values in itertools.product(*self.vary.values()):
            point = dict(zip(self.vary, values, strict=True))
            case = self.base.at({**self.fixed, **point})
            case.check()
            cell = Cell(point, case, files.of(case))
            if not isinstance(case.scenario, Setting):
                files.plan(cell.sources.scenario, cell.sources.domain, case.level)
            fitted = not isinstance(case.model, Rates) and bool(files.model(cell.sources.model).uncertainty)
            if fitted and isinstance(case.scenario, Setting) and case.draws != 0:
                what = "a composed setting does not carry the uncertainty of a fitted model: draws 0 takes its means"
                raise InputError(what, value=case.model)
            uncertain = uncertain or fitted
            found.append(cell)
        if self.base.draws and not uncertain:
            raise InputError("draws are of a fitted model, one with a posterior to draw from", value=self.base.draws)
        return found


def _axis(name: str, values: Iterable[Value]) -> tuple[Value, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} takes several values, as a list", value=values)
    typed = tuple(_typed(name, value) for value in values)
    if not typed:
        raise InputError(f"{name} has no value to take")
    if len(set(typed)) < len(typed):
        raise InputError(f"{name} has a value twice", value=list(typed))
    return typed
