"""``invsim live``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invsim.cli.inputs import read_plan, split_names
from invsim.cli.output import print_json, print_rows, progress, to_json
from invsim.cli.provider import (
    DOLLARS,
    caps_of,
    exit_if_failed,
    price_from,
    print_rehearsal,
    provider_options,
    settings_of,
)
from invsim.cli.serve import TOKEN, connection
from invsim.errors import InputError

if TYPE_CHECKING:
    from invsim.live.run import LiveResult
    from invsim.live.tally import ArmTally


@click.command()
@click.argument("scenario")
@provider_options
@click.option("--arms", default="A0,A2D", show_default=True, metavar="NAMES", help="Arms, with commas.")
@click.option("--seeds", type=int, default=1, show_default=True, help="Streams per arm.")
@click.option("--episodes", type=int, metavar="K", help="The first K episodes of the stream.  [default: all]")
@click.option("--consumption", default="L3", show_default=True, metavar="LEVEL", help="none, L2 or L3.")
@click.option("--time", "clock", default="simulated", show_default=True, metavar="KIND",
              help="simulated: an answer takes no time; wall: drift goes on while the model thinks.")  # fmt: skip
@click.option("--tick-seconds", type=float, default=1.0, show_default=True, help="A tick of --time wall.")
@click.option("--level", metavar="LEVEL", help="Wire level of the server.  [default: the scenario's]")
@click.option("--server", metavar="URL", help="Play against this service (see invsim serve).")
@click.option("--admin-token-env", default=TOKEN, show_default=True, metavar="NAME",
              help="Environment variable that holds the service's operator token.")  # fmt: skip
@click.option("--max-calls", type=int, help="Cap on calls, those sent again included, over all runs into the folder.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of the journal and the trace.")
@click.option("--dry-run", is_flag=True, help="Print the prompts and the most they can cost; no key, no call.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the table.")
def live(
    scenario: str,
    arms: str,
    seeds: int,
    episodes: int | None,
    consumption: str,
    clock: str,
    tick_seconds: float,
    level: str | None,
    server: str | None,
    admin_token_env: str,
    max_calls: int | None,
    out: Path | None,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Play a scenario with a real model in the loop.

    Every answer is written to DIR/calls.jsonl before it is used, so that the same command goes on after an
    interruption and pays for nothing twice. DIR/trace.jsonl is the run in the native trace format, DIR/summary.json
    what is printed. It ends with 0, also at a cap, and with 1 where the provider failed. Keys come from
    ANTHROPIC_API_KEY or OPENAI_API_KEY and are written nowhere.

    \b
    Example:
      invsim live payments --provider anthropic --model claude-haiku-4-5 --episodes 12 --dry-run
    """
    from invsim.client.arms import get_arm
    from invsim.client.prompt import Consumption
    from invsim.live.rehearsal import rehearse

    settings, caps, price = settings_of(options), caps_of(options, max_calls), price_from(options)
    shown = Consumption.parse(consumption, where="--consumption")
    if clock not in {"simulated", "wall"}:
        raise InputError("is simulated or wall", where="--time", value=clock)
    if seeds < 1:
        raise InputError("must be 1 or more", where="--seeds", value=seeds)
    plan = read_plan(scenario, level)
    plan = plan if episodes is None else plan.first(episodes)
    chosen = [get_arm(name, where="--arms") for name in split_names(arms, "--arms")]
    if dry_run:
        found = rehearse(plan, settings=settings, arms=chosen, streams=seeds, level=shown, price=price, caps=caps)
        print_rehearsal(found, as_json=as_json)
        return
    if out is None:
        raise InputError("a folder is needed for what is paid for", where="--out")
    from invsim.live.ask import open_asker
    from invsim.live.run import JOURNAL, SUMMARY, run_live

    with (
        connection(plan.domain, server, admin_token_env) as connect,
        open_asker(settings, out / JOURNAL, caps, price) as asker,
        progress(f"{plan.name}, {settings.model}", len(chosen) * seeds * len(plan.episodes)) as tick,
    ):
        result = run_live(
            plan,
            asker=asker,
            arms=chosen,
            streams=seeds,
            level=shown,
            folder=out,
            connect=connect,
            tick_seconds=tick_seconds if clock == "wall" else None,
            ended=None if tick is None else lambda: tick(1),
        )
    (out / SUMMARY).write_bytes(to_json(result.to_dict()))
    _print_result(result, out, as_json=as_json)
    exit_if_failed(asker)


def _print_result(result: LiveResult, out: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict())
    else:
        asker = result.asker
        click.echo(
            f"{result.scenario}, {result.model}, consumption {result.level}: {result.episodes} episodes a stream"
        )
        print_rows([_row(result, each) for each in result.arms])
        spent = asker.budget.spent
        money = "" if asker.budget.price is None else f", ${spent.cost:.4f} ({DOLLARS})"
        click.echo(f"{asker.fresh} calls made, {asker.recalled} recalled; in all {spent.tokens:,} tokens{money}")
        for (model, how), calls in asker.served.items():
            if how != "same":
                click.echo(
                    f"note: {calls} calls asked for {result.model} and were served by {model or 'unknown'} ({how})"
                )
        click.echo("intervals: Jeffreys, 95%; episodes that repeat a task are not independent, so they are too short")
    for fault in result.asker.journal.bad:
        click.echo(f"note: {out / 'calls.jsonl'}, {fault}", err=True)
    if result.stopped is not None:
        click.echo(f"{result.stopped}\nall answers are kept in {out}; the same command goes on from there", err=True)


def _row(result: LiveResult, arm: ArmTally) -> dict[str, Any]:
    counts, rates = arm.counts, arm.rates
    saving = result.token_saving(arm)
    refused = counts["refused"] + counts["invalid"] + counts["truncated"] + counts["double_encoded"]
    return {
        "arm": arm.arm,
        "episodes": counts["episodes"],
        "completed": counts["completed"],
        "first try": str(rates["first_try"]),
        "eligible": str(rates["eligible"]),
        "validity": str(rates["validity"]),
        "given valid": str(rates["injected:valid"]),
        "retries": counts["attempts"] - rates["first_try"].of,
        "no request": refused,
        "strayed": counts["strayed"],
        "evicted": counts["evictions"],
        "tokens": arm.tokens,
        "saving": "-" if saving is None else f"{saving['value']:.1%}",
    }
