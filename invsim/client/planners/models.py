"""Models as TOML files: the published profiles, the reference models, and a user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from invsim.client.arms import get_arm
from invsim.client.planners.posterior import BetaPosterior, Posterior, RetryPosterior
from invsim.client.planners.probabilistic import Behaviour, ProbabilisticModel, RetryLaw
from invsim.errors import InputError, UnknownNameError
from invsim.located import Place, Source, Step, decode, path_text
from invsim.world.wire import Shape

PUBLISHED = (
    "claude-haiku-4-5",
    "claude-sonnet-4-6",
    "claude-sonnet-5",
    "gpt-5.4-mini",
    "deepseek-v4-flash",
    "gpt-5-mini",
    "gemini-3.5-flash",
)
DEAREST = 1e6
"""Largest conflict cost, in base costs of an attempt."""

REFERENCE = ("compliant", "compliant-stale", "refuser")


class _Count(msgspec.Struct, forbid_unknown_fields=True):
    """A rate that is not a plain number: counts, or the beta distribution of an estimate."""

    applied: int | None = None
    of: int | None = None
    alpha: float | None = None
    beta: float | None = None


class _Unaided(_Count, forbid_unknown_fields=True):
    first: float | _Count | None = None
    repeat: float | _Count | None = None


class _Law(msgspec.Struct, forbid_unknown_fields=True):
    q: float | None = None
    pmf: list[float] | None = None
    counts: list[float] | None = None
    exhausted: float | None = None


class _BehaviourFile(msgspec.Struct, forbid_unknown_fields=True):
    p_apply: float | _Count | None = None
    p_fresh: float | _Count | None = None
    p_stale: float | _Count | None = None
    p_unaided: float | _Unaided | None = None
    retry: _Law | None = None
    retry_injected: _Law | None = None


class _TokensFile(msgspec.Struct, forbid_unknown_fields=True):
    conflict: float = 0.0


class _ModelFile(msgspec.Struct, forbid_unknown_fields=True, rename={"classes": "class", "shapes": "shape"}):
    name: str
    title: str = ""
    source: str = ""
    published_arms: list[str] = []
    tokens: _TokensFile = msgspec.field(default_factory=_TokensFile)
    default: _BehaviourFile = msgspec.field(default_factory=_BehaviourFile)
    classes: dict[str, _BehaviourFile] = {}
    shapes: dict[str, _BehaviourFile] = {}


def model_names() -> tuple[str, ...]:
    """Return the names of the shipped models, the published ones first."""
    return (*PUBLISHED, *REFERENCE)


def load_model(name: str) -> ProbabilisticModel:
    """Return a model by name, or from a TOML file when the name ends in ".toml".

    Raises
    ------
    UnknownNameError, InputError
        A file's errors name its line and field.
    """
    source = model_source(name)
    model = parse_model(source)
    if name not in model_names() and model.name in model_names():
        what = "is the name of a shipped model, whose published figures would stand beside yours; choose another"
        raise InputError(what, where=source.where("name"), value=model.name)
    return model


def model_source(name: str) -> Source:
    """Return the text behind a model's name or path."""
    if name in model_names():
        file = resources.files("invsim.data").joinpath("models", f"{name}.toml")
        return Source(f"{name}.toml", file.read_text(encoding="utf-8"))
    if name.endswith(".toml"):
        return Source.read(Path(name))
    raise UnknownNameError("model", name, (*model_names(), "a .toml file"))


def parse_model(source: Source) -> ProbabilisticModel:
    """Build a model from the text of its file."""
    file = decode(source, _ModelFile)
    if not file.name.strip():
        raise InputError("name must not be empty", where=source.where("name"), value=file.name)
    shapes = [str(shape) for shape in Shape]
    for shape in file.shapes:
        if shape not in shapes:
            raise UnknownNameError("hint shape", shape, shapes, where=source.where("shape", shape))
    if not 0 <= file.tokens.conflict <= DEAREST:
        where = source.where("tokens", "conflict")
        raise InputError(f"conflict must be a number from 0 to {DEAREST:g}", where=where, value=file.tokens.conflict)
    for arm in file.published_arms:
        get_arm(arm, where=source.where("published_arms"))
    default = _behaviour(file.default, _Read(Behaviour(), {}), source, ("default",))
    classes = {name: _behaviour(each, default, source, ("class", name)) for name, each in file.classes.items()}
    by_shape = {name: _behaviour(each, default, source, ("shape", name)) for name, each in file.shapes.items()}
    sections = {("default", ""): default}
    sections |= {("class", name): each for name, each in classes.items()}
    sections |= {("shape", name): each for name, each in by_shape.items()}
    return ProbabilisticModel(
        name=file.name,
        title=file.title,
        source=file.source,
        published_arms=tuple(file.published_arms),
        conflict=file.tokens.conflict,
        default=default.rates,
        classes={name: each.rates for name, each in classes.items()},
        shapes={name: each.rates for name, each in by_shape.items()},
        uncertainty={(*at, name): found for at, each in sections.items() for name, found in each.posteriors.items()},
    )


class _Read(NamedTuple):
    """What a section says, with what it inherits: its rates, and the posteriors of those estimated, by field."""

    rates: Behaviour
    posteriors: dict[str, Posterior]


_Given: TypeAlias = float | RetryLaw | Posterior


def _behaviour(file: _BehaviourFile, base: _Read, source: Source, field: tuple[Step, ...]) -> _Read:
    given: dict[str, _Given] = {}
    for name, value in (("p_apply", file.p_apply), ("p_fresh", file.p_fresh), ("p_stale", file.p_stale)):
        if value is not None:
            given[name] = _rate(value, source, (*field, name))
    if file.p_unaided is not None:
        given |= _unaided(file.p_unaided, source, (*field, "p_unaided"))
    # One law serves for both cases unless the second is given.
    for name, law, serves in (
        ("retry", file.retry, ("retry", "retry_injected")),
        ("retry_injected", file.retry_injected, ("retry_injected",)),
    ):
        if law is not None:
            given |= dict.fromkeys(serves, _law(law, source, (*field, name)))
    estimated = {name: each for name, each in given.items() if isinstance(each, BetaPosterior | RetryPosterior)}
    inherited = {name: each for name, each in base.posteriors.items() if name not in given}
    points = {name: estimated[name].mean if name in estimated else each for name, each in given.items()}
    return _Read(replace(base.rates, **points), {**inherited, **estimated})  # type: ignore[arg-type]


def _unaided(value: float | _Unaided, source: Source, field: tuple[Step, ...]) -> dict[str, _Given]:
    """Return the unaided rates that are given, of a key's first occurrence and of the later ones."""
    if not isinstance(value, _Unaided):
        return dict.fromkeys(("p_unaided_first", "p_unaided_repeat"), _rate(value, source, field))
    parts = {"p_unaided_first": value.first, "p_unaided_repeat": value.repeat}
    split = {name: _rate(each, source, field) for name, each in parts.items() if each is not None}
    whole = {name: each for name, each in _said(value).items() if name not in {"first", "repeat"}}
    if split and not whole:
        return {
            name: replace(each, key=f"{each.key}.{name}") if isinstance(each, BetaPosterior) else each
            for name, each in split.items()
        }
    if not split and whole.keys() in ({"applied", "of"}, {"alpha", "beta"}):
        return dict.fromkeys(parts, _rate(value, source, field))
    what = "p_unaided is a rate, {applied, of}, {alpha, beta}, or {first, repeat}"
    raise InputError(what, where=source.where(*field), value=_said(value))


def _said(value: msgspec.Struct) -> dict[str, object]:
    return {name: each for name, each in msgspec.to_builtins(value).items() if each is not None}


def _rate(value: float | _Count, source: Source, field: tuple[Step, ...]) -> float | BetaPosterior:
    where = source.where(*field)
    match value:
        case _Count(applied=int(applied), of=int(of), alpha=None, beta=None):
            if not (of > 0 and 0 <= applied <= of):
                raise InputError(
                    "counts need 0 <= applied <= of, of > 0", where=where, value={"applied": applied, "of": of}
                )
            return applied / of
        case _Count(alpha=float(alpha), beta=float(beta), applied=None, of=None):
            return _placed(lambda key: BetaPosterior(alpha, beta, key=key), where, field)
        case _Count():
            raise InputError("a rate is a number, {applied, of} or {alpha, beta}", where=where, value=_said(value))
    if not 0.0 <= value <= 1.0:
        raise InputError("must be a probability from 0 to 1", where=where, value=value)
    return float(value)


def _law(file: _Law, source: Source, field: tuple[Step, ...]) -> RetryLaw | RetryPosterior:
    where = source.where(*field)
    match file:
        case _Law(q=float(q), pmf=None, counts=None, exhausted=None):
            return RetryLaw.geometric(q, where=where)
        case _Law(q=None, pmf=list(pmf), counts=None, exhausted=None):
            return RetryLaw.explicit(tuple(pmf), where=where)
        case _Law(q=None, pmf=None, counts=list(counts)):
            return _placed(lambda key: RetryPosterior(tuple(counts), file.exhausted or 0.0, key=key), where, field)
    what = "a retry law is either { q = ... } or { pmf = [...] }, or { counts = [...], exhausted = ... }"
    raise InputError(what, where=where)


T = TypeVar("T")


def _placed(build: Callable[[str], T], where: Place, field: tuple[Step, ...]) -> T:
    """Build a posterior that knows its field; what is wrong with it is told with its file and line."""
    try:
        return build(path_text(field))
    except InputError as error:
        raise InputError(error.what, where=where, value=error.value) from None
