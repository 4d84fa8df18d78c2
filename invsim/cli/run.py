"""``invsim run``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invsim.cli.inputs import arms_of, check_classes, check_file, model_names_of, read_plan, split_names
from invsim.cli.output import print_json, progress, to_json
from invsim.cli.serve import TOKEN, connection
from invsim.errors import InputError

if TYPE_CHECKING:
    from invsim.client.planners import ProbabilisticModel
    from invsim.experiment import Observer, RunResult, Watch
    from invsim.sim.engine import Connect
    from invsim.sim.plan import Plan
    from invsim.traces.schema import Call


@click.command()
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
@click.option(
    "--draws",
    type=int,
    metavar="K",
    help="Draws of a fitted model from its posterior; 0 takes its means.  [default: 200 where it has one]",
)
@click.option("--pmf", metavar="NAMES", help="Add the exact distributions of these counts (JSON).")
@click.option("--precision", type=float, metavar="H", help="Simulate until 95% half-widths are at most H.")
@click.option("--metrics", metavar="NAMES", help="What --precision waits for.  [default: the rates of savings]")
@click.option("--budget", type=int, help="Streams at which --precision stops in any case.  [default: 100,000,000]")
@click.option("--seed", type=int, default=1, show_default=True, help="Root of all draws.")
@click.option(
    "--level", metavar="LEVEL", help="Wire level of the server: L0, L1, L4, L5 or L6.  [default: the scenario's]"
)
@click.option("--server", metavar="URL", help="Play against this service (see invsim serve), by the simpy engine.")
@click.option(
    "--admin-token-env",
    default=TOKEN,
    show_default=True,
    metavar="NAME",
    help="Environment variable that holds the service's operator token.",
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
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE",
    help="Record every attempt as .jsonl or .parquet, as a trace that can be fitted; plays with simpy.",
)  # fmt: skip
@click.option("--stream", type=int, default=0, show_default=True, help="The stream that --events plays again.")
def run(
    scenario: str,
    models: str,
    arms: str | None,
    replications: int | None,
    engine: str,
    draws: int | None,
    pmf: str | None,
    precision: float | None,
    metrics: str | None,
    budget: int | None,
    seed: int,
    level: str | None,
    server: str | None,
    admin_token_env: str,
    as_json: bool,
    out: Path | None,
    tables: tuple[Path, ...],
    figure: Path | None,
    events: Path | None,
    trace: Path | None,
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
      invsim run payments --replications 20 --trace payments.jsonl
    """
    from invsim.client.planners.models import load_model
    from invsim.experiment import BUDGET, PRECISE
    from invsim.experiment import run as work_out
    from invsim.uncertain import run_draws

    for option, given, needs, there in (
        ("--metrics", metrics is not None, "--precision", precision is not None),
        ("--budget", budget is not None, "--precision", precision is not None),
        ("--pmf", pmf is not None, "--json", as_json),
        ("--stream", stream != 0, "--events", events is not None),
        ("--admin-token-env", admin_token_env != TOKEN, "--server", server is not None),
    ):
        if given and not there:
            raise InputError(f"goes with {needs}", where=option)
    plan = read_plan(scenario, level)
    chosen = [load_model(name) for name in model_names_of(models)]
    single = {
        "--pmf": pmf, "--precision": precision, "--out": out, "--events": events, "--server": server, "--trace": trace,
    }  # fmt: skip
    draws_of = _draws(chosen, draws, [name for name, value in single.items() if value is not None])
    _check_outputs(chosen, as_json, out, tables, figure, events, stream)
    _check_trace(trace, engine)
    asked = None if arms is None else split_names(arms, "--arms")
    if figure is not None and figure.suffix in {".svg", ".png"}:
        figure = figure.with_suffix("")
    connect = click.get_current_context().with_resource(connection(plan.domain, server, admin_token_env))
    results: list[RunResult] = []
    with _recording(trace) as write:
        for model in chosen:
            check_classes(plan, model)
            picked = arms_of(plan, model, asked)
            if number := draws_of[model.name]:
                with progress(f"{plan.name}, {model.name}", number) as tick:
                    results.append(
                        run_draws(
                            plan, model=model, arms=picked, draws=number, replications=replications, seed=seed,
                            engine=engine, tick=tick,
                        )
                    )  # fmt: skip
                continue
            with progress(f"{plan.name}, {model.name}", replications and replications * len(picked)) as tick:
                observe = _observer(plan, model.name, out, tick) if out is not None or tick is not None else None
                results.append(
                    work_out(
                        plan,
                        model=model,
                        arms=picked,
                        replications=replications,
                        seed=seed,
                        observe=observe,
                        watch=None if write is None else _watch(plan, model.name, seed, write),
                        engine=engine,
                        pmf=() if pmf is None else split_names(pmf, "--pmf"),
                        precision=precision,
                        precise=PRECISE if metrics is None else split_names(metrics, "--metrics"),
                        budget=BUDGET if budget is None else budget,
                        connect=connect,
                    )
                )
    _print_results(plan, results, as_json=as_json, multiple=len(chosen) > 1)
    if events is not None:
        _write_events(plan, chosen[0], asked, seed, stream, events, connect)
    if out is not None:
        _write_summary(results, out)
        (out / "run.json").write_bytes(to_json([each.to_dict() for each in results]))
    for table in tables:
        _write_table(plan, results, table)
    if figure is not None:
        _draw(plan, results, figure)


def _draws(models: Sequence[ProbabilisticModel], asked: int | None, single: Sequence[str]) -> dict[str, int]:
    """Return how many draws to take of each model; 0 for one that is known, or to be played as its means."""
    from invsim.uncertain import DRAWS

    if asked is not None and asked < 0:
        raise InputError("must be 0 or more", where="--draws", value=asked)
    estimated = [model.name for model in models if model.uncertainty]
    if asked and not estimated:
        names = ", ".join(model.name for model in models)
        raise InputError("goes with a fitted model, one with a posterior to draw from", where="--draws", value=names)
    if estimated and asked != 0 and single:
        raise InputError("is of one model, and this one is drawn many times: add --draws 0", where=single[0])
    number = DRAWS if asked is None else asked
    return {model.name: number if model.uncertainty else 0 for model in models}


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
        check_file(table, "--table")
    if figure is not None:
        if not figure.name or figure.name == "..":
            raise InputError("takes the name of a file", where="--figure", value=str(figure))
        check_file(figure.with_name(f"{figure.name}.svg"), "--figure")
    if stream < 0:
        raise InputError("must be 0 or more", where="--stream", value=stream)
    if events is not None:
        if len(models) > 1:
            raise InputError(
                "plays one model's stream; name one with --model", where="--events", value=", ".join(names)
            )
        if str(events) != "-":
            check_file(events, "--events")
        elif as_json:
            raise InputError("the event log and --json cannot both go to standard output", where="--events")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InputError("is not empty; results go to a folder of their own", where="--out", value=str(out))


def _check_trace(trace: Path | None, engine: str) -> None:
    if trace is None:
        return
    if engine in {"exact", "vector"}:
        raise InputError("records attempts, which simpy alone plays one by one", where="--trace", value=engine)
    if trace.suffix not in {".jsonl", ".parquet"}:
        raise InputError("takes a file that ends in .jsonl or .parquet", where="--trace", value=str(trace))
    check_file(trace, "--trace")


@contextmanager
def _recording(trace: Path | None) -> Iterator[Callable[[Call], None] | None]:
    """Yield what writes a call to the trace; None where none is wanted."""
    if trace is None:
        yield None
        return
    from invsim.traces.writing import open_writer

    with open_writer(trace) as writer:
        yield writer.write


def _watch(plan: Plan, model: str, seed: int, write: Callable[[Call], None]) -> Watch:
    from invsim.record import Recorder

    return lambda arm: Recorder(plan, model=model, arm=arm.name, write=write, seed=seed)


def _observer(plan: Plan, model: str, out: Path | None, tick: Any) -> Observer:
    from invsim.sim.result import write_block

    def observe(arm: Any, block: Any) -> None:
        if out is not None:
            write_block(plan, block, model=model, arm=arm.name, folder=out)
        if tick is not None:
            tick(len(block.streams))

    return observe


def _write_events(
    plan: Plan,
    model: ProbabilisticModel,
    asked: Sequence[str] | None,
    seed: int,
    stream: int,
    path: Path,
    connect: Connect,
) -> None:
    from invsim.sim.engine import rerun
    from invsim.sim.events import to_lines

    arms = arms_of(plan, model, asked)
    logs = [(arm.name, rerun(plan, arm=arm, model=model, seed=seed, stream=stream, connect=connect)) for arm in arms]
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
    with (out / "summary.parquet").open("wb") as file:  # by its name Polars might write elsewhere
        pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None).write_parquet(file)


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
        print_json([each.to_dict() for each in results] if multiple else results[0].to_dict())
        return
    from rich.console import Console
    from rich.markup import escape

    from invsim.report.tables import for_terminal
    from invsim.uncertain import UncertainRun

    first = results[0]
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(escape(plan.title or plan.name))
    how = f"engine {first.engine}, wire level {first.level}"
    each_draw = " and draw" if isinstance(first, UncertainRun) else ""
    if first.engine == "exact":
        console.print(f"exact values, {how}")
    else:
        console.print(
            f"{first.replications:,} streams per arm{each_draw}, seed {first.seed}, {how}; ±Monte Carlo standard error"
        )
    if drawn := [each for each in results if isinstance(each, UncertainRun)]:
        console.print(
            f"{drawn[0].draws} draws of the model from its posterior; ±standard deviation over them, and below it "
            "their 95% interval, with the Monte Carlo error if there is any"
        )
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
