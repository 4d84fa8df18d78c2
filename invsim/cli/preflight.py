"""``invsim preflight``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invsim.cli.inputs import read_plan, split_names
from invsim.cli.output import print_json, print_rows, progress, to_json
from invsim.cli.provider import caps_of, exit_if_failed, price_from, print_rehearsal, provider_options, settings_of
from invsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from invsim.live.preflight import Cell, Measured
    from invsim.live.verdict import Prediction
    from invsim.world.wire import Shape

SHAPES = "add-a-field,rewrite-a-value,conditional-rewrite"


@click.command()
@provider_options
@click.option("--shapes", default=SHAPES, show_default=True, metavar="NAMES", help="Hint shapes, with commas.")
@click.option("--consumption", default="none,L2,L3", show_default=True, metavar="LEVELS",
              help="Consumption levels, with commas; the verdict is for the last.")  # fmt: skip
@click.option("--scenario", default="payments", show_default=True, help="What the saving is predicted for.")
@click.option("--arms", default="A1,A2,A2D", show_default=True, metavar="NAMES", help="Arms to predict.")
@click.option("--seed", type=int, default=1, show_default=True, help="Draws the cases.")
@click.option("--max-calls", type=int, default=120, show_default=True,
              help="Cap on calls into the folder, those sent again included.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of the journal and the model.")
@click.option("--dry-run", is_flag=True, help="Print the prompts and the most they can cost; no key, no call.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the tables.")
def preflight(
    shapes: str,
    consumption: str,
    scenario: str,
    arms: str,
    seed: int,
    max_calls: int,
    out: Path | None,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure in tens of calls whether a model applies fixes, and whether a memory would pay.

    Cases with a fix that is known to be right go to the model, for each hint shape and consumption level, until each
    rate is clearly above or below one half, or known well enough; cases without memory show what it solves unaided and
    how it recovers. The verdict is what each arm would save on a scenario. DIR/model.toml is the model for
    `invsim run --model`.

    \b
    Example:
      invsim preflight --provider openai --model gpt-5-mini --shapes add-a-field --dry-run
    """
    from invsim.client.arms import get_arm
    from invsim.client.prompt import Consumption
    from invsim.live.cases import case
    from invsim.live.rehearsal import rehearse_cases

    settings, caps, price = settings_of(options), caps_of(options, max_calls), price_from(options)
    asked = [_shape(name) for name in split_names(shapes, "--shapes")]
    levels = [Consumption.parse(name, where="--consumption") for name in split_names(consumption, "--consumption")]
    plan = read_plan(scenario, None)
    chosen = [get_arm(name, where="--arms") for name in split_names(arms, "--arms")]
    if seed < 0:
        raise InputError("must be 0 or more", where="--seed", value=seed)
    if dry_run:
        cases = [case(shape, 0, seed=seed) for shape in asked]
        found = rehearse_cases(cases, settings=settings, levels=levels, calls=max_calls, price=price, caps=caps)
        print_rehearsal(found, as_json=as_json)
        return
    if out is None:
        raise InputError("a folder is needed for what is paid for", where="--out")
    from invsim.live.ask import open_asker
    from invsim.live.preflight import measure
    from invsim.live.run import JOURNAL
    from invsim.live.verdict import fitted, model_text, predict
    from invsim.sim.facts import tabulate

    tabulate(plan)  # refuses, before anything is paid for, what the exact engine cannot predict
    with (
        open_asker(settings, out / JOURNAL, caps, price) as asker,
        progress(f"preflight, {settings.model}", max_calls) as tick,
    ):
        each_case = None if tick is None else lambda: tick(1)
        measured = measure(asker, shapes=asked, levels=levels, seed=seed, folder=out, asked=each_case)
    predictions = []
    if measured.cases:  # without one there is the prior alone, which is no finding, and no file to put over another
        (out / "model.toml").write_text(model_text(measured), encoding="utf-8")
        predictions = predict(plan, fitted(measured), arms=chosen, seed=seed)
    data = _data(measured, predictions, plan.name)
    (out / "preflight.json").write_bytes(to_json(data))
    if as_json:
        print_json(data)
    else:
        _print(measured, predictions, plan.name, out)
    if asker.stopped is not None:
        click.echo(f"stopped at {asker.at}: {asker.stopped}\nall answers are kept in {out}", err=True)
    exit_if_failed(asker)


def _shape(name: str) -> Shape:
    from invsim.world.wire import Shape

    if name not in list(Shape):
        raise UnknownNameError("hint shape", name, list(Shape), where="--shapes")
    return Shape(name)


def _data(found: Measured, predictions: list[Prediction], scenario: str) -> dict[str, object]:
    asker, spent = found.asker, found.asker.budget.spent
    return {
        "model": asker.settings.model,
        "identity": found.identity,
        "served": [{"model": name, "as_requested": how, "calls": n} for (name, how), n in asker.served.items()],
        "consumption": str(found.level),
        "cells": [each.to_dict() for each in found.cells],
        "recovered_at_retry": found.recovered,
        "exhausted": found.exhausted,
        "scenario": scenario,
        "predictions": [each.to_dict() for each in predictions],
        "stopped": None if asker.stopped is None else str(asker.stopped),
        "calls_new": asker.fresh,
        "calls_recalled": asker.recalled,
        "spent": {
            "calls": spent.calls,
            "tokens": spent.tokens,
            "cost": None if asker.budget.price is None else spent.cost,
        },
    }


WORDS = {
    "yes": "applies it", "no": "does not", "narrow": "about as often as not", "undecided": "undecided",
    None: "not finished",
}  # fmt: skip


def _print(found: Measured, predictions: list[Prediction], scenario: str, out: Path) -> None:
    from invsim.live.verdict import WORTH

    asker = found.asker
    for (name, how), calls in asker.served.items():
        click.echo(f"identity: {calls} calls asked for {asker.settings.model}, served by {name or 'unknown'} ({how})")
    if found.identity == "other":
        click.echo("warning: another model than the one asked for was served; what follows is about that one")
    click.echo()
    if not found.cases:
        click.echo("nothing was measured: no verdict, and no model file")
        return
    print_rows([_row(each) for each in found.cells])
    click.echo("intervals: 95% whenever one stops to look, for each cell by itself")
    laws = ", ".join(f"{count} at retry {at}" for at, count in enumerate(found.recovered, 1) if count)
    click.echo(f"recovery without memory: {laws or 'none'}, {found.exhausted} never\n")
    print_rows([_predicted(each) for each in predictions])
    click.echo(
        f"predicted for {scenario} at consumption {found.level}; 95% intervals over the posterior; "
        f"to pay is to save more than {WORTH:.0%} of the tokens"
    )
    for each in predictions:
        click.echo(f"{each.arm}: {_verdict(each)}")
    spent = asker.budget.spent
    click.echo(
        f"\n{asker.fresh} calls made, {asker.recalled} recalled, {spent.tokens:,} tokens in all; {out}/model.toml"
    )


def _row(cell: Cell) -> dict[str, Any]:
    lo, hi = cell.interval
    word = WORDS[cell.decided] if cell.injected else {"yes": "solves it", "no": "needs memory"}.get(
        cell.decided or "", WORDS[cell.decided]
    )  # fmt: skip
    return {
        "shape": str(cell.shape),
        "consumption": str(cell.level),
        "in memory": "a valid fix" if cell.injected else "nothing",
        "first try": f"{cell.applied}/{cell.of}",
        "interval": f"{lo:.2f}-{hi:.2f}",
        "no request": cell.unfit,
        "strayed": cell.strayed,
        "finding": word,
    }


def _predicted(each: Prediction) -> dict[str, Any]:
    shown = {
        name.replace("_", " "): "-" if value is None else f"{value[0]:.1%} ({value[1]:.1%} to {value[2]:.1%})"
        for name, value in each.metrics.items()
    }
    return {"arm": each.arm, **shown, "pays": "-" if each.pays is None else f"{each.pays:.0%}"}


def _verdict(each: Prediction) -> str:
    if each.pays is None:
        return "no prediction"
    word = "memory pays" if each.pays >= 0.95 else "memory does not pay" if each.pays <= 0.05 else "not decided"
    return f"{word}; the probability that it pays is {each.pays:.0%}"
