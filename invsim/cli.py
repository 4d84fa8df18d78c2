"""The command line: parse, call, print. Everything heavy is imported where a command needs it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invsim import __version__
from invsim.errors import InputError, InvsimError, one_line

if TYPE_CHECKING:
    from invsim.client.planners import ProbabilisticModel
    from invsim.experiment import Observer, RunResult
    from invsim.explain import Explanation
    from invsim.sim.plan import Plan

USAGE_ERROR = 2
INTERNAL_ERROR = 70
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="invsim")
def cli() -> None:
    """Simulate invalidation contracts: what cached API fixes save when the server's data drifts.

    \b
    Example:
      invsim run payments --model claude-haiku-4-5
    """


# run --------------------------------------------------------------------------------------------------------------


@cli.command()
@click.argument("scenario")
@click.option(
    "--model",
    "models",
    default="claude-haiku-4-5",
    show_default=True,
    metavar="NAMES|FILE",
    help="A model by name or TOML file; several with commas; 'published' for the seven of the paper.",
)
@click.option("--arms", metavar="NAMES", help="Arms, with commas.  [default: those of the scenario and the model]")
@click.option("--replications", type=int, help="Streams per arm.  [default: exact, or 500 where that cannot be]")
@click.option(
    "--engine",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="simpy plays every event; vector plays arrays of streams; exact samples none; auto takes the fastest.",
)
@click.option("--pmf", metavar="NAMES", help="Add the exact distributions of these counts (JSON).")
@click.option("--precision", type=float, metavar="H", help="Simulate until 95% half-widths are at most H.")
@click.option("--metrics", metavar="NAMES", help="What --precision waits for.  [default: the rates of savings]")
@click.option("--budget", type=int, help="Streams at which --precision stops in any case.  [default: 100,000,000]")
@click.option("--seed", type=int, default=1, show_default=True, help="Root of all draws.")
@click.option(
    "--level", metavar="LEVEL", help="Wire level of the server: L0, L1, L4, L5 or L6.  [default: the scenario's]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the table.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write Parquet: episodes, streams, summary."
)
@click.option(
    "--table",
    "tables",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Write the table as .csv or .md; may be given twice.",
)
@click.option("--figure", type=click.Path(path_type=Path), metavar="BASE", help="Draw the result: BASE.svg, BASE.png.")
@click.option(
    "--events", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE",
    help="Write the event log of one stream per arm as JSON lines.",
)  # fmt: skip
@click.option("--stream", type=int, default=0, show_default=True, help="The stream that --events plays again.")
def run(
    scenario: str,
    models: str,
    arms: str | None,
    replications: int | None,
    engine: str,
    pmf: str | None,
    precision: float | None,
    metrics: str | None,
    budget: int | None,
    seed: int,
    level: str | None,
    as_json: bool,
    out: Path | None,
    tables: tuple[Path, ...],
    figure: Path | None,
    events: Path | None,
    stream: int,
) -> None:
    """Simulate SCENARIO (a name or a TOML file) and print each arm's metrics, published figures beside them.

    \b
    Examples:
      invsim run payments
      invsim run payments --model gpt-5-mini --arms A0,A2D --replications 200 --json
      invsim run rules --model compliant --replications 2
      invsim run payments --engine vector --precision 0.001
      invsim run payments --engine exact --pmf retries,tokens --json
    """
    from invsim.client.planners.models import load_model
    from invsim.experiment import BUDGET, PRECISE
    from invsim.experiment import run as work_out

    for option, given, needs, there in (
        ("--metrics", metrics is not None, "--precision", precision is not None),
        ("--budget", budget is not None, "--precision", precision is not None),
        ("--pmf", pmf is not None, "--json", as_json),
        ("--stream", stream != 0, "--events", events is not None),
    ):
        if given and not there:
            raise InputError(f"goes with {needs}", where=option)
    plan = _plan(scenario, level)
    chosen = [load_model(name) for name in _model_names(models)]
    _check_outputs(chosen, as_json, out, tables, figure, events, stream)
    asked = None if arms is None else _names(arms, "--arms")
    if figure is not None and figure.suffix in {".svg", ".png"}:
        figure = figure.with_suffix("")
    results = []
    for model in chosen:
        _check_classes(plan, model)
        picked = _arms(plan, model, asked)
        with _progress(f"{plan.name}, {model.name}", replications and replications * len(picked)) as tick:
            observe = _observer(plan, model.name, out, tick) if out is not None or tick is not None else None
            results.append(
                work_out(
                    plan,
                    model=model,
                    arms=picked,
                    replications=replications,
                    seed=seed,
                    observe=observe,
                    engine=engine,
                    pmf=() if pmf is None else _names(pmf, "--pmf"),
                    precision=precision,
                    precise=PRECISE if metrics is None else _names(metrics, "--metrics"),
                    budget=BUDGET if budget is None else budget,
                )
            )
    _print_results(plan, results, as_json=as_json, multiple=len(chosen) > 1)
    if events is not None:
        _write_events(plan, chosen[0], asked, seed, stream, events)
    if out is not None:
        _write_summary(results, out)
        (out / "run.json").write_bytes(_json([each.to_dict() for each in results]))
    for table in tables:
        _write_table(plan, results, table)
    if figure is not None:
        _draw(plan, results, figure)


def _plan(scenario: str, level: str | None) -> Plan:
    from invsim.sim.plan import compile_plan
    from invsim.sim.scenario import load_scenario
    from invsim.world.wire import Level

    chosen = None if level is None else Level.parse(level, where="--level")
    return compile_plan(load_scenario(scenario), level=chosen)


def _check_classes(plan: Plan, model: ProbabilisticModel) -> None:
    """Refuse a model's class that looks like a misspelt class of the scenario."""
    import difflib

    missing = [name for name in plan.classes if name not in model.classes]
    for name in model.classes:
        near = difflib.get_close_matches(name, missing, n=1, cutoff=0.8) if name not in plan.classes else []
        if near:
            what = f"model {model.name!r} has a class {name!r} that {plan.name} has not; did you mean {near[0]!r}?"
            raise InputError(what)


def _check_outputs(
    models: Sequence[ProbabilisticModel],
    as_json: bool,
    out: Path | None,
    tables: Sequence[Path],
    figure: Path | None,
    events: Path | None,
    stream: int,
) -> None:
    """Refuse what could not be written before anything is simulated, and make the folders that are missing."""
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise InputError("two models have one name, so their results could not be told apart", value=name)
    for table in tables:
        if table.suffix not in {".csv", ".md"}:
            raise InputError("takes a file that ends in .csv or .md", where="--table", value=str(table))
        _check_file(table, "--table")
    if figure is not None:
        if not figure.name or figure.name == "..":
            raise InputError("takes the name of a file", where="--figure", value=str(figure))
        _check_file(figure.with_name(f"{figure.name}.svg"), "--figure")
    if stream < 0:
        raise InputError("must be 0 or more", where="--stream", value=stream)
    if events is not None:
        if len(models) > 1:
            raise InputError(
                "plays one model's stream; name one with --model", where="--events", value=", ".join(names)
            )
        if str(events) != "-":
            _check_file(events, "--events")
        elif as_json:
            raise InputError("the event log and --json cannot both go to standard output", where="--events")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InputError("is not empty; results go to a folder of their own", where="--out", value=str(out))


def _check_file(path: Path, option: str) -> None:
    if path.is_dir():
        raise InputError("is a folder, not a file", where=option, value=str(path))
    path.parent.mkdir(parents=True, exist_ok=True)


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError("names at least one", where=option, value=text)
    return list(dict.fromkeys(names))


def _model_names(text: str) -> list[str]:
    from invsim.client.planners.models import PUBLISHED

    return [each for name in _names(text, "--model") for each in (PUBLISHED if name == "published" else (name,))]


def _arms(plan: Plan, model: ProbabilisticModel, asked: Sequence[str] | None) -> list[Any]:
    from invsim.client.arms import get_arm

    if asked is not None:
        return [get_arm(name, where="--arms") for name in asked]
    published = [arm for arm in plan.arms if arm.name in model.published_arms] if plan.name == "payments" else []
    return published or list(plan.arms)


@contextmanager
def _progress(label: str, total: int | None) -> Iterator[Any]:
    """Yield a function that counts streams done and shows a bar; None where there is no terminal, or no total."""
    if total is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)


def _observer(plan: Plan, model: str, out: Path | None, tick: Any) -> Observer:
    from invsim.sim.result import write_block

    def observe(arm: Any, block: Any) -> None:
        if out is not None:
            write_block(plan, block, model=model, arm=arm.name, folder=out)
        if tick is not None:
            tick(len(block.streams))

    return observe


def _write_events(
    plan: Plan, model: ProbabilisticModel, asked: Sequence[str] | None, seed: int, stream: int, path: Path
) -> None:
    from invsim.sim.engine import rerun
    from invsim.sim.events import to_lines

    arms = _arms(plan, model, asked)
    logs = [(arm.name, rerun(plan, arm=arm, model=model, seed=seed, stream=stream)) for arm in arms]
    with click.open_file(str(path), "wb") as file:
        for name, log in logs:
            file.write(to_lines(log, stream=stream, arm=name))


def _write_summary(results: Sequence[RunResult], out: Path) -> None:
    import polars as pl

    rows = [
        {"scenario": result.scenario, "model": result.model, "arm": arm.arm, "metric": name, **each.to_dict()}
        for result in results
        for arm in result.arms
        for name, each in [
            *arm.metrics.items(),
            *((f"first_try_by_class.{key}", value) for key, value in arm.first_try_by_class.items()),
        ]
    ]
    types = {"value": pl.Float64, "se": pl.Float64, "n": pl.Int64}
    out.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None).write_parquet(out / "summary.parquet")


def _write_table(plan: Plan, results: Sequence[RunResult], path: Path) -> None:
    from invsim.report.tables import to_csv, to_markdown

    text = to_csv(results) if path.suffix == ".csv" else to_markdown(results, plan.title or plan.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _draw(plan: Plan, results: Sequence[RunResult], base: Path) -> None:
    from invsim.report.figures import grid_figure, save

    save(grid_figure(results, title=plan.title or plan.name), base)


def _print_results(plan: Plan, results: Sequence[RunResult], *, as_json: bool, multiple: bool) -> None:
    if as_json:
        _print_json([each.to_dict() for each in results] if multiple else results[0].to_dict())
        return
    from rich.console import Console
    from rich.markup import escape

    from invsim.report.tables import for_terminal

    first = results[0]
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(escape(plan.title or plan.name))
    how = f"engine {first.engine}, wire level {first.level}"
    if first.engine == "exact":
        console.print(f"exact values, {how}")
    else:
        console.print(f"{first.replications:,} streams per arm, seed {first.seed}, {how}; ±Monte Carlo standard error")
    for result in results:
        if result.stopped == "budget":
            console.print(f"note: {escape(result.model)}: the budget was spent before the precision was reached")
    for result in results:
        console.print()
        for part in for_terminal(result, f"{result.scenario}, {result.model}", width=console.width):
            console.print(part)
    for note in plan.notes:
        console.print(f"note: {escape(note)}")
    for arm in plan.arms:
        if arm.level > plan.world.level and any(each.arm == arm.name for each in first.arms):
            console.print(f"note: {arm.name} reads what only {arm.level.name} and above send; here it does less")


def _json(data: object) -> bytes:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(data), indent=2)


def _print_json(data: object) -> None:
    click.echo(_json(data))


# explain and sensitivity ------------------------------------------------------------------------------------------


@cli.command()
@click.argument("scenario")
@click.option("--model", default="claude-haiku-4-5", show_default=True, metavar="NAME|FILE", help="A model.")
@click.option("--arm", "arm_name", default="A2D", show_default=True, metavar="NAME", help="An arm.")
@click.option("--level", metavar="LEVEL", help="Wire level of the server.  [default: the scenario's]")
@click.option("--replications", type=int, default=20_000, show_default=True, help="Streams of the Monte Carlo side.")
@click.option("--seed", type=int, default=1, show_default=True, help="Root of all draws.")
@click.option("--price", type=float, default=1.0, show_default=True, help="Money for the base cost of one attempt.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the tables.")
def explain(
    scenario: str,
    model: str,
    arm_name: str,
    level: str | None,
    replications: int,
    seed: int,
    price: float,
    as_json: bool,
) -> None:
    """Take apart what memory saves in SCENARIO: validity x compliance, what that leaves out, and when it misleads.

    \b
    Example:
      invsim explain payments --model claude-sonnet-5 --arm A2D
    """
    from invsim.client.arms import get_arm
    from invsim.client.planners.models import load_model
    from invsim.explain import explain as take_apart

    if replications < 2:
        raise InputError("must be 2 or more", where="--replications", value=replications)
    if seed < 0:
        raise InputError("must be 0 or more", where="--seed", value=seed)
    if not 0 <= price < float("inf"):
        raise InputError("must be a finite number, 0 or more", where="--price", value=price)
    plan, chosen = _plan(scenario, level), load_model(model)
    _check_classes(plan, chosen)
    found = take_apart(
        plan, model=chosen, arm=get_arm(arm_name, where="--arm"), replications=replications, seed=seed, price=price
    )
    if as_json:
        _print_json(_explained(found))
        return
    from rich.console import Console
    from rich.markup import escape

    from invsim.report.tables import savings_tables

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(escape(f"{found.scenario}, {found.model}, {found.arm}: what memory saves, in retries per stream"))
    console.print(f"exact, and below it from {found.streams:,} simulated streams ±standard error\n")
    for part in savings_tables(found, width=console.width):
        console.print(part)
        console.print()
    for line in found.verdict:
        console.print(escape(line), soft_wrap=True)


def _explained(found: Explanation) -> dict[str, object]:
    return {
        "scenario": found.scenario,
        "model": found.model,
        "arm": found.arm,
        "replications": found.streams,
        "exact": found.exact.figures(),
        "sampled": {
            name: {each: estimate.to_dict() for each, estimate in figures.items()}
            for name, figures in found.sampled.items()
        },
        "priced": {
            name: {
                "product": each.saving.product,
                **each.saving.corrections,
                "realised": each.saving.realised,
                "carrying": each.carrying,
                "conflict": each.conflict,
                "net": each.net,
            }
            for name, each in found.priced.items()
        },
        "verdict": found.verdict,
    }


@cli.command()
@click.argument("scenario")
@click.option("--model", default="claude-haiku-4-5", show_default=True, metavar="NAME|FILE", help="What is not varied.")
@click.option("--arm", "arm_name", default="A2D", show_default=True, metavar="NAME", help="An arm.")
@click.option("--metric", default="token_saving", show_default=True, metavar="NAME", help="What is explained.")
@click.option(
    "--vary",
    multiple=True,
    metavar="NAME=LOW:HIGH",
    help="p_apply, p_fresh, p_stale, p_unaided or q, in all classes or CLASS.NAME.  [default: all but q, 0:1]",
)
@click.option("--points", type=int, default=64, show_default=True, help="Base points, a power of 2.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the points.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the table.")
def sensitivity(
    scenario: str, model: str, arm_name: str, metric: str, vary: tuple[str, ...], points: int, seed: int, as_json: bool
) -> None:
    """Say which of a model's parameters a metric of SCENARIO depends on (Sobol indices, from exact values).

    \b
    Example:
      invsim sensitivity payments --vary p_apply=0:1 --vary p_unaided=0:0.5 --points 16
    """
    from invsim.client.arms import get_arm
    from invsim.client.planners.models import load_model
    from invsim.explain import sensitivity as share_out

    ranges = dict(_range(text) for text in vary or ("p_apply=0:1", "p_fresh=0:1", "p_stale=0:1", "p_unaided=0:1"))
    if seed < 0:
        raise InputError("must be 0 or more", where="--seed", value=seed)
    found = share_out(
        _plan(scenario, None),
        model=load_model(model),
        arm=get_arm(arm_name, where="--arm"),
        metric=metric,
        ranges=ranges,
        points=points,
        seed=seed,
    )
    rows: list[dict[str, Any]] = [
        {
            "parameter": name,
            "range": "{:g}:{:g}".format(*ranges[name]),
            "first": float(found.first[at]),
            "first_interval": [float(found.first_interval.lo[at]), float(found.first_interval.hi[at])],
            "total": float(found.total[at]),
            "total_interval": [float(found.total_interval.lo[at]), float(found.total_interval.hi[at])],
        }
        for at, name in enumerate(found.names)
    ]
    head = {"scenario": scenario, "model": model, "arm": arm_name, "metric": metric, "mean": found.mean}
    if as_json:
        _print_json({**head, "variance": found.variance, "evaluations": found.evaluations, "parameters": rows})
        return
    click.echo(f"{metric} of {arm_name} in {scenario}, {model}: mean {found.mean:.3f}, sd {found.variance**0.5:.3f}")
    click.echo(f"shares of its variance over the ranges, from {found.evaluations:,} exact values; 95% intervals")
    _print_rows([{name: _share(value) for name, value in row.items()} for row in rows])


def _range(text: str) -> tuple[str, tuple[float, float]]:
    name, equals, limits = text.partition("=")
    low, colon, high = limits.partition(":")
    try:
        if not (equals and colon):
            raise ValueError
        return name.strip(), (float(low), float(high))
    except ValueError:
        raise InputError("is NAME=LOW:HIGH, such as p_apply=0:1", where="--vary", value=text) from None


def _share(value: object) -> str:
    if isinstance(value, list):
        return f"{value[0]:.3f} to {value[1]:.3f}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


# replay -----------------------------------------------------------------------------------------------------------


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print every figure as JSON in place of the table.")
def replay(as_json: bool) -> None:
    """Replay the 114 published drifted runs from their integer outcomes, and compare what comes out with the print.

    \b
    Example:
      invsim replay
    """
    from invsim.report.replay import replay as replayed

    rows = [
        {
            "model": each.model,
            "arm": each.arm,
            "metric": each.metric,
            "replayed": each.value,
            "of": each.of,
            "published": each.published.value,
            "published_count": each.published.count,
            "where": each.published.where,
            "agrees": each.agrees,
        }
        for each in replayed()
    ]
    if as_json:
        _print_json(rows)
        return
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    summary = []
    for metric in metrics:
        mine = [row for row in rows if row["metric"] == metric]
        summary.append({"metric": metric, "figures": len(mine), "agree": sum(bool(row["agrees"]) for row in mine)})
    _print_rows([*summary, {"metric": "all", "figures": len(rows), "agree": sum(bool(row["agrees"]) for row in rows)}])
    for row in rows:
        if not row["agrees"]:
            click.echo(f"differs: {row}")


# scenario ---------------------------------------------------------------------------------------------------------


@cli.group()
def scenario() -> None:
    """List, show, check and start scenario manifests.

    \b
    Example:
      invsim scenario list
    """


@scenario.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the table.")
def scenario_list(as_json: bool) -> None:
    """List the shipped scenarios.

    \b
    Example:
      invsim scenario list
    """
    from invsim.sim.scenario import SHIPPED

    plans = [_plan(name, None) for name in SHIPPED]
    rows = [
        {
            "name": plan.name,
            "domain": plan.domain.name,
            "episodes": len(plan.episodes),
            "drift": len(plan.drift),
            "arms": [arm.name for arm in plan.arms],
            "title": plan.title,
        }
        for plan in plans
    ]
    _print_listing(rows, as_json=as_json)


@scenario.command("show")
@click.argument("name")
def scenario_show(name: str) -> None:
    """Print the manifest of a shipped scenario: a file to copy and change.

    \b
    Example:
      invsim scenario show payments
    """
    from invsim.sim.scenario import load_scenario

    click.echo(load_scenario(name).source.text, nl=False)


@scenario.command("check")
@click.argument("file")
def scenario_check(file: str) -> None:
    """Check a manifest against its domain, and say what it holds.

    \b
    Example:
      invsim scenario check payments
    """
    plan = _plan(file, None)
    click.echo(
        f"{plan.name}: {len(plan.episodes)} episodes of {len(plan.classes)} classes ({', '.join(plan.classes)}), "
        f"{len(plan.drift)} drift events, wire level {plan.world.level.name}"
    )
    for event in plan.drift:
        kind = "rotation" if event.rotation else "republish" if event.subject != "rules" else "rule change"
        click.echo(f"  after episode {event.after_episode}, tick {event.tick}: {kind}, {event.subject}")
    listed = " ".join(str(at) for at in plan.eligible.nonzero()[0])
    click.echo(f"  eligible episodes: {listed or 'none declared'}")
    for note in plan.notes:
        click.echo(f"  note: {note}")


@scenario.command("new")
@click.argument("file", type=click.Path(path_type=Path))
def scenario_new(file: Path) -> None:
    """Write a small commented manifest to start from; an existing file is left alone.

    \b
    Example:
      invsim scenario new mine.toml
    """
    from importlib import resources

    if file.suffix != ".toml":
        raise InputError("a manifest's name ends in .toml", where="FILE", value=str(file))
    text = resources.files("invsim.sim.scenarios").joinpath("template.toml.txt").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise InputError("exists already and is left as it is", where=str(file)) from None
    click.echo(f"wrote {file}; try: invsim scenario check {file}")


# model and arm ------------------------------------------------------------------------------------------------------


@cli.group()
def model() -> None:
    """List and show compliance models.

    \b
    Example:
      invsim model list
    """


@model.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the table.")
def model_list(as_json: bool) -> None:
    """List the shipped models: the seven published profiles, and the reference ones.

    \b
    Example:
      invsim model list
    """
    from invsim.client.planners.models import load_model, model_names

    loaded = [load_model(name) for name in model_names()]
    rows = [{"name": each.name, "title": each.title} for each in loaded]
    _print_listing(rows, as_json=as_json)


@model.command("show")
@click.argument("name")
def model_show(name: str) -> None:
    """Print a shipped model's file, with the evidence of each line: a file to copy and change.

    \b
    Example:
      invsim model show claude-sonnet-5
    """
    from invsim.client.planners.models import model_source

    click.echo(model_source(name).text, nl=False)


@cli.group()
def arm() -> None:
    """List the arms: what a client does with the contract.

    \b
    Example:
      invsim arm list
    """


@arm.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the table.")
def arm_list(as_json: bool) -> None:
    """List the arms, and the lowest wire level that carries what each reads.

    \b
    Example:
      invsim arm list
    """
    from invsim.client.arms import arm_names, get_arm

    arms = [get_arm(name) for name in arm_names()]
    rows = [{"name": each.name, "level": each.level.name, "title": each.title} for each in arms]
    _print_listing(rows, as_json=as_json)


def _print_listing(rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        _print_json(rows)
    else:
        _print_rows(rows)


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        table.add_column(name, justify="right" if isinstance(rows[0][name], int) else "left", overflow="fold")
    for row in rows:
        texts = (" ".join(value) if isinstance(value, list) else str(value) for value in row.values())
        table.add_row(*map(escape, texts))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)


# The way out --------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 with one line on stderr for a caller's mistake."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign still gets its line
    try:
        code = cli.main(args=None if arguments is None else list(arguments), prog_name="invsim", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE_ERROR
    except click.ClickException as error:
        return _fail(error.format_message(), USAGE_ERROR)
    except InvsimError as error:
        return _fail(str(error), USAGE_ERROR)
    except SystemExit as error:  # click's own way out when the reader of a pipe has gone
        return error.code if isinstance(error.code, int) else INTERNAL_ERROR
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}", USAGE_ERROR)
    except Exception as error:
        if os.environ.get("INVSIM_DEBUG"):
            raise
        return _fail(
            f"internal error: {type(error).__name__}: {error} (set INVSIM_DEBUG=1 to see where; please report it)",
            INTERNAL_ERROR,
        )
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    click.echo(f"invsim: {one_line(' '.join(message.split()))}", err=True)
    return code
