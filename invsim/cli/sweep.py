"""``invsim sweep``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invsim.cli.inputs import check_file, needs_extra, split_names
from invsim.cli.output import print_json, print_rows, progress
from invsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from invsim.sweep import Case, Sweep
    from invsim.sweep.cases import Value

MODEL = "claude-haiku-4-5"
"""Of a scenario that is named, unless rates are given."""

MOST_VALUES = 10_000

PATIENCE = "5s"
"""How long a Dask scheduler is waited for."""


@click.command()
@click.argument("scenario")
@click.option(
    "--vary",
    multiple=True,
    metavar="NAME=VALUES",
    help="A parameter and its values, with commas or as LOW:HIGH:STEP; every value meets every value of the others.",
)
@click.option(
    "--set", "fixed", multiple=True, metavar="NAME=VALUE", help="A parameter of a planner or a composed setting."
)
@click.option(
    "--model", metavar="NAME|FILE",
    help=f"A model by name or TOML file.  [default: {MODEL}; a planner of p_apply etc. where those are given, "
    "or the scenario is composed]",
)  # fmt: skip
@click.option("--arms", metavar="NAMES", help="Arms, with commas.  [default: the scenario's]")
@click.option("--level", metavar="LEVEL", help="Wire level: L0, L1, L4, L5 or L6.  [default: the scenario's]")
@click.option(
    "--replications", type=int, help="Streams per arm (and schedule).  [default: as invsim run; composed: 500]"
)
@click.option(
    "--schedules", type=int, default=8, show_default=True, help="Drift schedules that a composed setting meets."
)
@click.option("--engine", default="auto", show_default=True, metavar="NAME", help="simpy, vector, exact or auto.")
@click.option("--draws", type=int, metavar="K", help="Draws of a fitted model; 0 takes its means.  [default: 200]")
@click.option("--seed", type=int, default=1, show_default=True, help="Root of all draws, the same for every cell.")
@click.option("--workers", type=int, default=1, show_default=True, help="Processes that work on cells.")
@click.option("--dask", metavar="ADDRESS", help="Work on the Dask cluster whose scheduler listens there.")
@click.option(
    "--metric", "metrics", default="token_saving", show_default=True, metavar="NAMES", help="What is printed."
)
@click.option("--json", "as_json", is_flag=True, help="Print every metric as JSON in place of the table.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep each cell here as it is finished, and sweep.parquet and .csv; what is there is not worked out again.",
)
@click.option("--figure", type=click.Path(path_type=Path), metavar="BASE", help="Draw the metric: BASE.svg, BASE.png.")
def sweep(
    scenario: str,
    vary: tuple[str, ...],
    fixed: tuple[str, ...],
    model: str | None,
    arms: str | None,
    level: str | None,
    replications: int | None,
    schedules: int,
    engine: str,
    draws: int | None,
    seed: int,
    workers: int,
    dask: str | None,
    metrics: str,
    as_json: bool,
    out: Path | None,
    figure: Path | None,
) -> None:
    """Work out SCENARIO for every combination of some parameters' values, and print what each arm comes to.

    SCENARIO is a name, a TOML file, or "composed": tasks about some keys that are dealt over some tables, whose rows
    drift at a rate, averaged over schedules.

    \b
    Parameters:
      any scenario  scenario, model, level, seed
      a planner     p_apply, p_fresh, p_stale, p_unaided
      composed      episodes, keys, tables, drift, rows, benign, constrained, shape
    \b
    Examples:
      invsim sweep composed --vary drift=0:0.2:0.05 --vary tables=1,6 --set p_apply=0.8 --arms A1,A2,A2D
      invsim sweep payments --vary model=gpt-5-mini,claude-sonnet-5 --vary level=L0,L6 --metric token_saving,retries
      invsim sweep composed --vary drift=0,0.1 --vary keys=3,6 --schedules 2 --workers 2 --out study --json
    """
    from invsim.sweep import Study
    from invsim.sweep import sweep as work_out

    if workers < 1:
        raise InputError("must be 1 or more", where="--workers", value=workers)
    if dask is not None and workers != 1:
        raise InputError("the workers of a cluster are its own: leave --workers away", where="--dask", value=dask)
    shown = split_names(metrics, "--metric")
    axes = _axes(vary)
    point = {name: _one(name, text) for name, text in _pairs(fixed, "--set").items()}
    _check_once(axes, point, {"model": model, "level": level})
    base = replace(
        _base(scenario, model, {*axes, *point}).at(point),
        arms=None if arms is None else tuple(split_names(arms, "--arms")),
        level=level, replications=replications, schedules=schedules, engine=engine, draws=draws, seed=seed,
    )  # fmt: skip
    study = Study(base, axes)
    if figure is not None:
        figure = figure.with_suffix("") if figure.suffix in {".svg", ".png"} else figure
        check_file(figure.with_name(f"{figure.name}.svg"), "--figure")
    cells = len(study.cells())
    with _executor(workers, dask) as executor, progress(f"sweep, {cells} cells", cells) as tick:
        result = work_out(study, executor=executor, out=out, tick=tick)
    _check_metrics(result, shown)
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result, shown)
    if figure is not None:
        _draw(result, shown[0], figure)


# Reading ------------------------------------------------------------------------------------------------------------


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    from invsim.sweep.cases import KINDS

    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not value:
            raise InputError("is NAME=VALUE", where=option, value=text)
        if name not in KINDS:
            raise UnknownNameError("parameter", name, KINDS, where=option)
        if name in found:
            raise InputError("is given twice", where=option, value=name)
        found[name] = value
    return found


def _axes(texts: Sequence[str]) -> dict[str, list[Value]]:
    return {name: _values(name, text) for name, text in _pairs(texts, "--vary").items()}


def _values(name: str, text: str) -> list[Value]:
    from invsim.sweep.cases import KINDS

    if KINDS[name] is str or ":" not in text:
        return [_one(name, part.strip(), "--vary") for part in text.split(",")]
    try:
        low, high, step = (Decimal(part.strip()) for part in text.split(":"))
    except (InvalidOperation, ValueError):
        raise InputError("a range is LOW:HIGH:STEP", where=f"--vary {name}", value=text) from None
    if not (low.is_finite() and high.is_finite() and step.is_finite()) or step <= 0 or high < low:
        raise InputError("a range goes up from LOW to HIGH by a STEP above 0", where=f"--vary {name}", value=text)
    if (high - low) / step >= MOST_VALUES:
        raise InputError(f"a range has at most {MOST_VALUES:,} values", where=f"--vary {name}", value=text)
    return [_one(name, str(low + at * step), "--vary") for at in range(int((high - low) / step) + 1)]


def _one(name: str, text: str, option: str = "--set") -> Value:
    from invsim.sweep.cases import KINDS

    kind = KINDS[name]
    try:
        value: Value = kind(text)
    except ValueError:
        what = "is a whole number" if kind is int else "is a number"
        raise InputError(what, where=f"{option} {name}", value=text) from None
    if text == "":
        raise InputError("has no value", where=f"{option} {name}", value=text)
    return value


def _base(scenario: str, model: str | None, named: set[str]) -> Case:
    """Return the case that everything starts from."""
    from invsim.sim.compose import Setting
    from invsim.sweep import Case, Rates
    from invsim.sweep.cases import COMPOSED, OF_RATES

    composed = scenario == COMPOSED
    chosen = Rates() if model is None and (composed or named & OF_RATES) else model or MODEL
    return Case(Setting() if composed else scenario, model=chosen)


def _check_once(axes: Mapping[str, object], point: Mapping[str, object], options: Mapping[str, object]) -> None:
    """Refuse what is said in two places, of which one would be lost."""
    for name in point:
        if name in {"scenario", "model", "level", "seed"}:
            what = "is the argument" if name == "scenario" else f"has an option of its own, --{name}"
            raise InputError(what, where="--set", value=name)
        if name in axes:
            raise InputError("is varied too", where="--set", value=name)
    for name, given in options.items():
        if given is not None and name in axes:
            raise InputError("is varied too", where=f"--{name}", value=given)


@contextmanager
def _executor(workers: int, dask: str | None) -> Iterator[Executor | None]:
    if dask is not None:
        with needs_extra("dask"):
            from distributed import Client
        try:
            client: Any = Client(dask, timeout=PATIENCE)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise InputError(f"no Dask scheduler answers: {error}", where="--dask", value=dask) from None
        with client:
            yield client.get_executor()
    elif workers > 1:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool
    else:
        yield None


# Printing -----------------------------------------------------------------------------------------------------------


def _check_metrics(result: Sweep, metrics: Sequence[str]) -> None:
    known = dict.fromkeys(str(row["metric"]) for rows in result.rows for row in rows)
    for name in metrics:
        if name not in known:
            raise UnknownNameError("metric", name, known, where="--metric")


def _print(result: Sweep, metrics: Sequence[str]) -> None:
    click.echo(_told(result))
    for metric in metrics:
        click.echo(f"\n{metric.replace('_', ' ')}, 95% interval")
        print_rows(_table(result, metric))


def _told(result: Sweep) -> str:
    base, varied = result.study.base, result.study.vary
    scenario = base.scenario if isinstance(base.scenario, str) else f"composed, {base.schedules} schedules"
    model = base.model if isinstance(base.model, str) else "a planner of rates"
    said = {"scenario": scenario, "model": model, "seed": f"seed {base.seed}"}
    parts = [text for name, text in said.items() if name not in varied]
    recalled = f"; {result.recalled} recalled" if result.recalled else ""
    return f"{', '.join([*parts, f'{len(result.cells)} cells'])}{recalled}"


def _table(result: Sweep, metric: str) -> list[Mapping[str, Any]]:
    """Return a line for each cell, an arm a column."""
    from invsim.report.tables import number

    arms = dict.fromkeys(str(row["arm"]) for rows in result.rows for row in rows)
    lines: list[Mapping[str, Any]] = []
    for cell, rows in zip(result.cells, result.rows, strict=True):
        mine = {row["arm"]: row for row in rows if row["metric"] == metric}
        texts = {}
        for arm in arms:
            row: Mapping[str, Any] = mine.get(arm, {"value": None, "lo": None, "hi": None})
            texts[arm] = number(row["value"])
            if row["lo"] is not None and row["hi"] > row["lo"]:
                texts[arm] += f" ({number(row['lo'])} to {number(row['hi'])})"
        lines.append({**{name: str(value) for name, value in cell.point.items()}, **texts})
    return lines


def _draw(result: Sweep, metric: str, base: Path) -> None:
    from invsim.report.figures import save
    from invsim.report.figures.sweeps import sweep_figure

    rows = result.frame().to_dicts()
    save(sweep_figure(rows, vary=result.study.vary, metric=metric, title=_told(result)), base)
