"""``invsim explain`` and ``invsim sensitivity``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from invsim.cli.inputs import check_classes, read_plan
from invsim.cli.output import print_json, print_rows
from invsim.errors import InputError

if TYPE_CHECKING:
    from invsim.explain import Explanation


@click.command()
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
    plan, chosen = read_plan(scenario, level), load_model(model)
    check_classes(plan, chosen)
    found = take_apart(
        plan, model=chosen, arm=get_arm(arm_name, where="--arm"), replications=replications, seed=seed, price=price
    )
    if as_json:
        print_json(_explained(found))
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


@click.command()
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
        read_plan(scenario, None),
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
        print_json({**head, "variance": found.variance, "evaluations": found.evaluations, "parameters": rows})
        return
    click.echo(f"{metric} of {arm_name} in {scenario}, {model}: mean {found.mean:.3f}, sd {found.variance**0.5:.3f}")
    click.echo(f"shares of its variance over the ranges, from {found.evaluations:,} exact values; 95% intervals")
    print_rows([{name: _share(value) for name, value in row.items()} for row in rows])


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
