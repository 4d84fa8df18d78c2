"""``invsim scenario``, ``invsim model`` and ``invsim arm``: what there is, shown and checked."""

from __future__ import annotations

from pathlib import Path

import click

from invsim.cli.inputs import read_plan
from invsim.cli.output import print_listing
from invsim.errors import InputError


@click.group()
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

    plans = [read_plan(name, None) for name in SHIPPED]
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
    print_listing(rows, as_json=as_json)


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
    plan = read_plan(file, None)
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


@click.group()
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
    print_listing(rows, as_json=as_json)


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


@click.group()
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
    print_listing(rows, as_json=as_json)
