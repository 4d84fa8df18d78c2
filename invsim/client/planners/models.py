"""Models as TOML files: the published profiles, the reference models, and a user's own."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import msgspec

from invsim.client.arms import get_arm
from invsim.client.planners.probabilistic import Behaviour, ProbabilisticModel, RetryLaw
from invsim.errors import InputError, UnknownNameError
from invsim.located import Source, Step, decode
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
    applied: int
    of: int


class _Unaided(msgspec.Struct, forbid_unknown_fields=True):
    first: float | _Count | None = None
    repeat: float | _Count | None = None
    applied: int | None = None
    of: int | None = None


class _Law(msgspec.Struct, forbid_unknown_fields=True):
    q: float | None = None
    pmf: list[float] | None = None


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
    shapes = [str(shape) for shape in Shape]
    for shape in file.shapes:
        if shape not in shapes:
            raise UnknownNameError("hint shape", shape, shapes, where=source.where("shape", shape))
    if not 0 <= file.tokens.conflict <= DEAREST:
        where = source.where("tokens", "conflict")
        raise InputError(f"conflict must be a number from 0 to {DEAREST:g}", where=where, value=file.tokens.conflict)
    for arm in file.published_arms:
        get_arm(arm, where=source.where("published_arms"))
    default = _behaviour(file.default, Behaviour(), source, ("default",))
    return ProbabilisticModel(
        name=file.name,
        title=file.title,
        source=file.source,
        published_arms=tuple(file.published_arms),
        conflict=file.tokens.conflict,
        default=default,
        classes={name: _behaviour(each, default, source, ("class", name)) for name, each in file.classes.items()},
        shapes={name: _behaviour(each, default, source, ("shape", name)) for name, each in file.shapes.items()},
    )


def _behaviour(file: _BehaviourFile, base: Behaviour, source: Source, field: tuple[Step, ...]) -> Behaviour:
    def rate(value: float | _Count | None, name: str, otherwise: float) -> float:
        return otherwise if value is None else _rate(value, source, (*field, name))

    first, repeat = base.p_unaided_first, base.p_unaided_repeat
    match file.p_unaided:
        case None:
            pass
        case _Unaided(applied=int(applied), of=int(of), first=None, repeat=None):
            first = repeat = _rate(_Count(applied, of), source, (*field, "p_unaided"))
        case _Unaided(applied=None, of=None) as split if split.first is not None or split.repeat is not None:
            first = rate(split.first, "p_unaided", first)
            repeat = rate(split.repeat, "p_unaided", repeat)
        case float() | int() as value:
            first = repeat = _rate(value, source, (*field, "p_unaided"))
        case other:
            where = source.where(*field, "p_unaided")
            shown = {name: each for name, each in msgspec.to_builtins(other).items() if each is not None}
            raise InputError("p_unaided is a rate, {applied, of}, or {first, repeat}", where=where, value=shown)
    retry = _law(file.retry, source, (*field, "retry")) or base.retry
    injected = _law(file.retry_injected, source, (*field, "retry_injected"))
    if injected is None:
        injected = retry if file.retry is not None else base.retry_injected
    return Behaviour(
        p_apply=rate(file.p_apply, "p_apply", base.p_apply),
        p_fresh=rate(file.p_fresh, "p_fresh", base.p_fresh),
        p_stale=rate(file.p_stale, "p_stale", base.p_stale),
        p_unaided_first=first,
        p_unaided_repeat=repeat,
        retry=retry,
        retry_injected=injected,
    )


def _rate(value: float | _Count, source: Source, field: tuple[Step, ...]) -> float:
    if isinstance(value, _Count):
        if not (value.of > 0 and 0 <= value.applied <= value.of):
            counts = {"applied": value.applied, "of": value.of}
            raise InputError("counts need 0 <= applied <= of, of > 0", where=source.where(*field), value=counts)
        return value.applied / value.of
    if not 0.0 <= value <= 1.0:
        raise InputError("must be a probability from 0 to 1", where=source.where(*field), value=value)
    return float(value)


def _law(file: _Law | None, source: Source, field: tuple[Step, ...]) -> RetryLaw | None:
    if file is None:
        return None
    where = source.where(*field)
    if (file.q is None) == (file.pmf is None):
        raise InputError("a retry law is either { q = ... } or { pmf = [...] }", where=where)
    if file.q is not None:
        return RetryLaw.geometric(file.q, where=where)
    return RetryLaw.explicit(tuple(file.pmf or ()), where=where)
