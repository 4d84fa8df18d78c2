"""``invsim sweep``."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invsim.cli.inputs import check_classes, check_file, needs_extra, split_names
from invsim.cli.output import fits, print_json, print_rows, progress
from invsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from invsim.sweep import Case, Study, Sweep
    from invsim.sweep.cases import Cell, Value

MODEL = "claude-haiku-4-5"
"""Of a scenario that is named, unless rates are given."""

MOST_VALUES = 10_000

PATIENCE = "5s"
"""How long a Dask scheduler is waited for."""


@click.command()
@click.argument("scenario", required=False)
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
@click.option("--schedules", type=int, help="Drift schedules that a composed setting meets.  [default: 8]")
@click.option("--engine", default="auto", show_default=True, metavar="NAME", help="simpy, vector, exact or auto.")
@click.option(
    "--draws", type=int, metavar="K",
    help="Draws of a fitted model; 0 takes its means, as a composed setting must.  [default: 200]",
)  # fmt: skip
@click.option(
    "--seed", type=int, default=1, show_default=True,
    help="Root of all draws, the same for every cell; the next schedule of a composed setting has the next.",
)  # fmt: skip
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
    help="Keep each cell here as it is finished, and at the end sweep.parquet and .csv. What is there already, of this "
    "sweep when it was stopped or of another, is not worked out again, unless a file that it came from has changed.",
)
@click.option(
    "--figure", type=click.Path(path_type=Path), metavar="BASE", help="Draw the first metric: BASE.svg, BASE.png."
)
def sweep(
    scenario: str | None,
    vary: tuple[str, ...],
    fixed: tuple[str, ...],
    model: str | None,
    arms: str | None,
    level: str | None,
    replications: int | None,
    schedules: int | None,
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
    drift at a rate, averaged over schedules. Leave it away where --vary names scenarios.

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
        _base(scenario, model, axes, point), arms=None if arms is None else tuple(split_names(arms, "--arms")),
        level=level, replications=replications, engine=engine, draws=draws, seed=seed,
    )  # fmt: skip
    study = Study(base if schedules is None else replace(base, schedules=schedules), axes, point)
    cells = study.cells()
    _check_cells(cells, shown, schedules)
    if figure is not None:
        figure = _check_figure(study, figure)
    label = f"sweep, {_counted(cells)}"
    with _executor(workers, dask) as executor, progress(label, len(cells)) as tick:
        result = work_out(study, executor=executor, out=out, tick=tick)
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
    where = f"--vary {name}"
    try:
        low, high, step = (Decimal(part.strip()) for part in text.split(":"))
        if not (low.is_finite() and high.is_finite() and step.is_finite()) or step <= 0 or high < low:
            raise InputError("a range goes up from LOW to HIGH by a STEP above 0", where=where, value=text)
        steps = (high - low) / step
    except (ArithmeticError, ValueError):  # no numbers, or out of all bounds
        raise InputError("a range is LOW:HIGH:STEP", where=where, value=text) from None
    if steps >= MOST_VALUES:
        raise InputError(f"a range has at most {MOST_VALUES:,} values", where=where, value=text)
    return [_one(name, f"{low + at * step:f}", "--vary") for at in range(int(steps) + 1)]


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


def _base(
    scenario: str | None, model: str | None, axes: Mapping[str, Sequence[Value]], point: Mapping[str, Value]
) -> Case:
    """Return the case that everything starts from."""
    from invsim.sim.compose import Setting
    from invsim.sweep import Case, Rates
    from invsim.sweep.cases import COMPOSED, OF_RATES

    if scenario is None and "scenario" not in axes:
        raise InputError("is missing: a name, a TOML file, or composed", where="SCENARIO")
    if scenario is not None and "scenario" in axes:
        raise InputError("is varied too", where="SCENARIO", value=scenario)
    composed = scenario == COMPOSED or "scenario" in axes
    chosen = Rates() if model is None and (scenario == COMPOSED or {*axes, *point} & OF_RATES) else model or MODEL
    return Case(Setting() if composed or scenario is None else scenario, model=chosen)


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


def _check_cells(cells: Sequence[Cell], metrics: Sequence[str], schedules: int | None) -> None:
    """Refuse what would come to light only when everything has been worked out, or not at all."""
    from invsim.sim.compose import Setting
    from invsim.sweep.work import metric_names

    settings = [cell.case.scenario for cell in cells if isinstance(cell.case.scenario, Setting)]
    if schedules is not None and not settings:
        raise InputError("are of a composed setting", where="--schedules", value=schedules)
    named = {(cell.sources, cell.case.level): cell for cell in cells if not isinstance(cell.case.scenario, Setting)}
    for cell in named.values():
        check_classes(cell.case.plans(cell.sources)[0], cell.case.compliance(cell.sources))
    known: dict[str, None] = {}
    for cell in cells:
        if known.keys() >= set(metrics):
            return
        known |= dict.fromkeys(metric_names(cell.case, cell.sources))
    for name in metrics:
        if name not in known:
            raise UnknownNameError("metric", name, known, where="--metric")


def _check_figure(study: Study, base: Path) -> Path:
    """Refuse what could not be drawn or written before anything is worked out."""
    from invsim.report.figures.sweeps import check_panels

    base = base.with_suffix("") if base.suffix in {".svg", ".png"} else base
    if not base.name or base.name == "..":
        raise InputError("takes the name of a file", where="--figure", value=str(base))
    check_file(base.with_name(f"{base.name}.svg"), "--figure")
    check_panels(study.vary)
    return base


@contextmanager
def _executor(workers: int, dask: str | None) -> Iterator[Executor | None]:
    if dask is not None:
        with _on_dask(dask) as executor:
            yield executor
    elif workers > 1:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_end_with_parent) as pool:
            yield pool
    else:
        yield None


@contextmanager
def _on_dask(address: str) -> Iterator[Executor]:
    with needs_extra("dask"):
        from distributed import Client
    logging.disable()  # what ends a sweep is said in one line, and not by the library besides
    try:
        try:
            client: Any = Client(address, timeout=PATIENCE)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise InputError(f"no Dask scheduler answers: {error}", where="--dask", value=address) from None
        with client:
            yield client.get_executor()
    finally:
        logging.disable(logging.NOTSET)


def _end_with_parent() -> None:
    """End this process when the one that started it has ended, killed perhaps: else it waits for work forever."""
    import multiprocessing

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# Printing -----------------------------------------------------------------------------------------------------------


def _print(result: Sweep, metrics: Sequence[str]) -> None:
    click.echo(_told(result))
    for metric in metrics:
        click.echo(f"\n{metric.replace('_', ' ')}, 95% interval")
        beside = _beside(result, metric)
        print_rows(beside if fits(beside) else _below(result, metric))


def _told(result: Sweep) -> str:
    study = result.study
    base = study.base
    scenario = base.scenario if isinstance(base.scenario, str) else f"composed, {base.schedules} schedules"
    model = base.model if isinstance(base.model, str) else "a planner of rates"
    said = {"scenario": scenario, "model": model, "level": base.level, "seed": f"seed {base.seed}"}
    parts = [text for name, text in said.items() if text is not None and name not in study.vary]
    parts += [f"{name} {value}" for name, value in study.fixed.items()]
    recalled = f"; {result.recalled} recalled" if result.recalled else ""
    return f"{', '.join([*parts, _counted(result.cells)])}{recalled}"


def _counted(cells: Sequence[Cell]) -> str:
    return f"{len(cells):,} cell{'s' if len(cells) != 1 else ''}"


def _estimates(result: Sweep, metric: str) -> Iterator[tuple[dict[str, str], dict[str, tuple[str, str]]]]:
    """Yield each cell's point, and by arm its value and interval, as texts."""
    from invsim.report.tables import number

    for cell, rows in zip(result.cells, result.rows, strict=True):
        texts = {}
        for row in (row for row in rows if row["metric"] == metric):
            wide: Any = row
            real = wide["lo"] is not None and wide["hi"] > wide["lo"]
            interval = f"{number(wide['lo'])} to {number(wide['hi'])}" if real else ""
            texts[str(row["arm"])] = (number(wide["value"]), interval)
        yield {name: str(value) for name, value in cell.point.items()}, texts


def _beside(result: Sweep, metric: str) -> list[Mapping[str, str]]:
    """Return a line for each cell, an arm a column."""
    arms = dict.fromkeys(str(row["arm"]) for rows in result.rows for row in rows)
    lines: list[Mapping[str, str]] = []
    for point, texts in _estimates(result, metric):
        found = {arm: texts.get(arm, ("-", "")) for arm in arms}
        lines.append(point | {arm: f"{value} ({text})" if text else value for arm, (value, text) in found.items()})
    return lines


def _below(result: Sweep, metric: str) -> list[Mapping[str, str]]:
    """Return a line for each cell and arm: long, and narrow."""
    return [
        point | {"arm": arm, "value": value, "95% interval": limits}
        for point, texts in _estimates(result, metric)
        for arm, (value, limits) in texts.items()
    ]


def _draw(result: Sweep, metric: str, base: Path) -> None:
    from invsim.report.figures import save
    from invsim.report.figures.sweeps import sweep_figure

    rows = result.frame().to_dicts()
    save(sweep_figure(rows, vary=result.study.vary, metric=metric, title=_told(result)), base)
