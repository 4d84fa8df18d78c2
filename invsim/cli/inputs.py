"""What commands read from their arguments, checked once at the border."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invsim.errors import InputError

if TYPE_CHECKING:
    from invsim.client.planners import ProbabilisticModel
    from invsim.sim.plan import Plan
    from invsim.traces.read import FileReport

FILE = click.Path(readable=False, path_type=Path)
"""A file that is asked for. Whether it can be read is seen where it is read, and is no matter of the others."""


def read_plan(scenario: str, level: str | None) -> Plan:
    """Compile a scenario, a name or a file, at a wire level of choice."""
    from invsim.sim.plan import compile_plan
    from invsim.sim.scenario import load_scenario
    from invsim.world.wire import Level

    chosen = None if level is None else Level.parse(level, where="--level")
    return compile_plan(load_scenario(scenario), level=chosen)


def check_classes(plan: Plan, model: ProbabilisticModel) -> None:
    """Refuse a model's class that looks like a misspelt class of the scenario."""
    import difflib

    missing = [name for name in plan.classes if name not in model.classes]
    for name in model.classes:
        near = difflib.get_close_matches(name, missing, n=1, cutoff=0.8) if name not in plan.classes else []
        if near:
            what = f"model {model.name!r} has a class {name!r} that {plan.name} has not; did you mean {near[0]!r}?"
            raise InputError(what)


def check_file(path: Path, option: str) -> None:
    """Refuse a folder where a file is to be written, and make the folders that are missing."""
    if path.is_dir():
        raise InputError("is a folder, not a file", where=option, value=str(path))
    make_folder(path.parent, option)


def make_folder(folder: Path, option: str) -> None:
    """Make a folder where it is missing; refuse a path that leads through a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(
            "is no folder, nor can it be made: a file is in the way", where=option, value=str(folder)
        ) from None


def each_once(context: click.Context, parameter: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Refuse a file that is named twice, since its calls would count twice."""
    seen: set[str] = set()
    for path in files:
        real = os.path.realpath(path)  # unlike its namesake, it bears with links that lead in a circle
        if real in seen:
            raise InputError("is given twice, and would count twice", where=str(path))
        seen.add(real)
    return files


def require_a_file(reports: Sequence[FileReport]) -> None:
    """Refuse files of which none could be read."""
    if not any(report.format for report in reports):
        more = f"; and {len(reports) - 1} more files cannot be read" if len(reports) > 1 else ""
        raise InputError(f"{reports[0].warnings[-1]}{more}")


def split_names(text: str, option: str) -> list[str]:
    """Return the names of a list with commas, each once; an empty list is a mistake."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError("names at least one", where=option, value=text)
    return list(dict.fromkeys(names))


def model_names_of(text: str) -> list[str]:
    """Return the models named, "published" standing for the seven of the paper."""
    from invsim.client.planners.models import PUBLISHED

    return [each for name in split_names(text, "--model") for each in (PUBLISHED if name == "published" else (name,))]


def arms_of(plan: Plan, model: ProbabilisticModel, asked: Sequence[str] | None) -> list[Any]:
    """Return the arms asked for, else those published for the model, else the scenario's."""
    from invsim.client.arms import get_arm

    if asked is not None:
        return [get_arm(name, where="--arms") for name in asked]
    published = [arm for arm in plan.arms if arm.name in model.published_arms] if plan.name == "payments" else []
    return published or list(plan.arms)


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Turn an import that fails for want of an extra into one line that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "invsim":
            raise
        raise InputError(f"this needs {package}: pip install 'invsim[{name}]'") from None
