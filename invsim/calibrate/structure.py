"""Which parameters of a profile are free: ``data/calibration.toml`` read, and turned into models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec

from invsim.client.arms import get_arm
from invsim.client.planners.models import PUBLISHED, load_model
from invsim.client.planners.probabilistic import MAX_RETRIES, Behaviour, ProbabilisticModel, RetryLaw
from invsim.errors import InputError, UnknownNameError
from invsim.located import Source, convert, parse

DEFAULT = "default"
RATES = ("p_apply", "p_fresh", "p_unaided_first", "p_unaided_repeat")
FIELDS = (*RATES, "p_unaided", "retry", "retry_injected")
DOMAINS = {"rate": (0.0, 1.0), "geometric": (0.0, 1.0), "mean": (1.0, float(MAX_RETRIES))}
"""Kinds of parameters, and what their values may be."""


class _Leaf(msgspec.Struct, forbid_unknown_fields=True, rename={"fixed": "is"}):
    why: str
    free: str | None = None
    start: float | None = None
    fixed: float | None = None


class _Owners(msgspec.Struct, forbid_unknown_fields=True, rename={"classes": "class"}):
    default: dict[str, _Leaf] = {}
    classes: dict[str, dict[str, _Leaf]] = {}


class _Derived(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    arm: str
    metric: str
    count: int
    of: int
    where: str


class _Total(msgspec.Struct, forbid_unknown_fields=True, rename={"constraint": "class"}):
    model: str
    constraint: str
    metric: str
    count: int
    arms: list[str]
    where: str


class Detection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Table 5: tokens against those of lazy vectors, as a range over three models."""

    arm: str
    low: float
    high: float
    where: str


class Tokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Models with a conflict cost of their own and why, and the deltas of Table 5."""

    conflict: tuple[str, ...]
    why: str
    detection: tuple[Detection, ...]


class PublishedWire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section 3.7: bytes of the archived responses. ``*_bytes`` of a field are per response or suggestion with it."""

    responses: int
    carriers: int
    mean_bytes: float
    contract_bytes: float
    contract_share: float
    carrier_bytes: float
    largest: float
    table_versions_share: float
    table_versions_bytes: float
    suggestion_share: float
    cache_hint_bytes: float
    table_bytes: float


class _File(msgspec.Struct, forbid_unknown_fields=True):
    common: _Owners
    tokens: Tokens
    wire: PublishedWire
    models: dict[str, _Owners] = {}
    derived: list[_Derived] = []
    total: list[_Total] = []


@dataclass(frozen=True)
class Parameter:
    """One parameter of a profile.

    Parameters
    ----------
    owner : str
        A constraint class, or "default".
    field : str
        One of ``FIELDS``; "p_unaided" is that of first and repeated occurrences.
    kind : {"rate", "geometric", "mean"}
        A probability; the chance that each retry succeeds; the mean of a maximum-entropy law of 1 to 4 retries.
    free : bool
    value : float
        What it is fixed to, or where the search for it starts.
    why : str
    """

    owner: str
    field: str
    kind: str
    free: bool
    value: float
    why: str

    @property
    def name(self) -> str:
        """Owner and field, as in "governed.p_apply"."""
        return f"{self.owner}.{self.field}"

    @property
    def domain(self) -> tuple[float, float]:
        """The least and the largest value."""
        return DOMAINS[self.kind]


@dataclass(frozen=True)
class Structure:
    """The parameters of one profile, default first."""

    model_name: str
    parameters: tuple[Parameter, ...]

    @property
    def free(self) -> tuple[Parameter, ...]:
        """Those to be estimated."""
        return tuple(each for each in self.parameters if each.free)

    def starts(self) -> dict[str, float]:
        """Return a value for every free parameter to begin with."""
        return {each.name: each.value for each in self.free}

    def behaviour(self, constraint: str, values: Mapping[str, float]) -> Behaviour:
        """Return what governs a class when the free parameters have these values."""
        rates: dict[str, float] = {"p_unaided_first": 0.0, "p_unaided_repeat": 0.0}
        laws: dict[str, RetryLaw] = {}
        for owner in (DEFAULT, constraint):
            for each in self.parameters:
                if each.owner == owner:
                    _put(each, values.get(each.name, each.value), rates, laws)
        p_apply, unaided = rates["p_apply"], rates["p_unaided_repeat"]
        # Injected alone, a stale fix looks like a valid one: the same share applies it.
        p_stale = max(0.0, (p_apply - unaided) / (1.0 - unaided)) if unaided < 1.0 else 0.0
        retry = laws["retry"]
        return Behaviour(**rates, p_stale=p_stale, retry=retry, retry_injected=laws.get("retry_injected", retry))

    def model(self, values: Mapping[str, float]) -> ProbabilisticModel:
        """Return the profile with these values; title, source and token costs are those of its file."""
        shipped = load_model(self.model_name)
        owners = dict.fromkeys(each.owner for each in self.parameters if each.owner != DEFAULT)
        return ProbabilisticModel(
            name=shipped.name,
            default=self.behaviour(DEFAULT, values),
            classes={owner: self.behaviour(owner, values) for owner in owners},
            title=shipped.title,
            source=shipped.source,
            published_arms=shipped.published_arms,
            conflict=shipped.conflict,
        )


def _put(parameter: Parameter, value: float, rates: dict[str, float], laws: dict[str, RetryLaw]) -> None:
    if parameter.kind == "rate":
        names = ("p_unaided_first", "p_unaided_repeat") if parameter.field == "p_unaided" else (parameter.field,)
        rates.update(dict.fromkeys(names, value))
        return
    laws[parameter.field] = law = RetryLaw.geometric(value) if parameter.kind == "geometric" else entropic(value)
    if parameter.field == "retry":
        laws["retry_injected"] = law


def entropic(mean: float) -> RetryLaw:
    """Return the law of 1 to 4 retries, without exhaustion, of a given mean and otherwise as even as can be.

    p(k) proportional to r^k: the law of largest entropy among those of that mean.

    Parameters
    ----------
    mean : float
        In [1, 4].
    """
    return RetryLaw.explicit(entropic_pmf(mean))


def entropic_pmf(mean: float) -> tuple[float, ...]:
    """Return P(k retries) of ``entropic(mean)``, k = 1..4."""
    if not 1.0 <= mean <= MAX_RETRIES:
        raise InputError(f"a mean number of retries is from 1 to {MAX_RETRIES}", value=mean)
    if mean in {1.0, float(MAX_RETRIES)}:
        return tuple(float(k == mean) for k in range(1, MAX_RETRIES + 1))
    from scipy.optimize import brentq
    from scipy.special import softmax

    retries = list(range(1, MAX_RETRIES + 1))

    def off(log_ratio: float) -> float:
        return float(softmax([k * log_ratio for k in retries]) @ retries) - mean

    tilt = brentq(off, -60.0, 60.0, xtol=1e-13)
    return tuple(float(p) for p in softmax([k * tilt for k in retries]))


@cache
def _file() -> tuple[Source, _File]:
    text = resources.files("invsim.data").joinpath("calibration.toml").read_text(encoding="utf-8")
    source = Source("calibration.toml", text)
    file = convert(source, parse(source), _File)
    for arm in [*(each.arm for each in file.derived), *(arm for each in file.total for arm in each.arms)]:
        get_arm(arm, where=source.name)
    return source, file


@cache
def structure(model_name: str) -> Structure:
    """Return the structure of a published profile.

    Raises
    ------
    UnknownNameError
        For a model that the paper prints nothing of.
    """
    if model_name not in PUBLISHED:
        raise UnknownNameError("published model", model_name, PUBLISHED)
    source, file = _file()
    merged: dict[tuple[str, str], Parameter] = {}
    own = file.models.get(model_name, _Owners())
    for part, steps in ((file.common, ("common",)), (own, ("models", model_name))):
        for owner, leaves in {DEFAULT: part.default, **part.classes}.items():
            for name, leaf in leaves.items():
                where = source.where(*steps, *((owner,) if owner == DEFAULT else ("class", owner)), name)
                merged[owner, name] = _parameter(owner, name, leaf, where)
    ordered = sorted(merged.values(), key=lambda each: each.owner != DEFAULT)
    return Structure(model_name, tuple(ordered))


def _parameter(owner: str, name: str, leaf: _Leaf, where: object) -> Parameter:
    if name not in FIELDS:
        raise UnknownNameError("parameter", name, FIELDS, where=where)
    if (leaf.free is None) == (leaf.fixed is None) or (leaf.free is None) != (leaf.start is None):
        raise InputError('a parameter is { free = "...", start = ... } or { is = ... }', where=where)
    kind = leaf.free or ("rate" if name.startswith("p_") else "geometric")
    allowed = ("rate",) if name.startswith("p_") else ("geometric", "mean")
    if kind not in allowed:
        raise UnknownNameError(f"kind of {name}", kind, allowed, where=where)
    value = leaf.start if leaf.fixed is None else leaf.fixed
    low, high = DOMAINS[kind]
    if value is None or not low <= value <= high:
        raise InputError(f"must be from {low:g} to {high:g}", where=where, value=value)
    return Parameter(owner, name, kind, leaf.fixed is None, float(value), leaf.why)


def derived(model_name: str) -> list[tuple[str, str, int, int, str]]:
    """Return (arm, metric, count, of, where) of integers that follow from the print without being in it."""
    return [(e.arm, e.metric, e.count, e.of, e.where) for e in _file()[1].derived if e.model == model_name]


def totals(model_name: str) -> list[tuple[str, str, int, tuple[str, ...], str]]:
    """Return (class, metric, count, arms, where) of counts of one class over several arms."""
    return [
        (e.constraint, e.metric, e.count, tuple(e.arms), e.where) for e in _file()[1].total if e.model == model_name
    ]


def published_tokens() -> Tokens:
    """Return what the token model is fitted to beside Table 6."""
    return _file()[1].tokens


def published_wire() -> PublishedWire:
    """Return what the paper prints of bytes."""
    return _file()[1].wire
