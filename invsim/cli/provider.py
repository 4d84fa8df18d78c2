"""Options of the commands that call a model, read once into settings, caps and a price."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from invsim.cli.output import print_json
from invsim.errors import InputError

if TYPE_CHECKING:
    from invsim.live.ask import Asker
    from invsim.live.budget import Caps, Price
    from invsim.live.completion import Settings
    from invsim.live.rehearsal import Rehearsal

PROVIDER_FAILED = 1

DOLLARS = "illustrative prices; see invsim/data/prices.toml, or give --price-in and --price-out"

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--provider", required=True, metavar="NAME", help="anthropic, or openai for any endpoint like it."),
    click.option("--model", required=True, metavar="NAME", help="The model, in the provider's words."),
    click.option("--base-url", metavar="URL", help="Another endpoint.  [default: the provider's own]"),
    click.option("--output", default="json", show_default=True, metavar="KIND", help="json: text; tool: a tool call."),
    click.option("--answer-tokens", type=int, default=256, show_default=True, help="Tokens an answer may take."),
    click.option("--temperature", type=float, help="[default: the endpoint's]"),
    click.option("--sampling-seed", type=int, help="Seed for the endpoint's sampling, where it takes one."),
    click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds for one sending."),
    click.option("--transport-retries", type=int, default=4, show_default=True, help="Times to send again at most."),
    click.option("--max-tokens", type=int, help="Cap on tokens, input and output, over all runs into the folder."),
    click.option("--max-cost", type=float, help="Cap on dollars, likewise."),
    click.option("--price-in", type=float, help="Dollars for a million input tokens."),
    click.option("--price-out", type=float, help="Dollars for a million output tokens."),
)


def provider_options(command: F) -> F:
    """Add the options that say which model is called, how, and what it may cost."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def settings_of(options: dict[str, Any]) -> Settings:
    """Return what is asked of whom."""
    from invsim.live.completion import Settings

    provider = options["provider"]
    own = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}.get(provider, "")
    return Settings(
        provider=provider,
        model=options["model"],
        base_url=options["base_url"] or os.environ.get(own) or None,
        output=options["output"],
        max_tokens=options["answer_tokens"],
        temperature=options["temperature"],
        sampling_seed=options["sampling_seed"],
        timeout=options["timeout"],
        max_retries=options["transport_retries"],
    )


def caps_of(options: dict[str, Any], calls: int | None) -> Caps:
    """Return the caps."""
    from invsim.live.budget import Caps

    return Caps(calls, options["max_tokens"], options["max_cost"])


def price_from(options: dict[str, Any]) -> Price | None:
    """Return the price given, else the one in the table, if there is one."""
    from invsim.live.budget import Price, price_of

    price_in, price_out = options["price_in"], options["price_out"]
    if (price_in is None) != (price_out is None):
        raise InputError("both are given, or neither", where="--price-in and --price-out")
    if price_in is None:
        return price_of(options["model"])
    return Price(options["model"], price_in, price_out, date="given", source="--price-in and --price-out")


def print_rehearsal(found: Rehearsal, *, as_json: bool) -> None:
    """Print what a dry run would have sent, and the most that it could have cost."""
    if as_json:
        print_json(found.to_dict())
        return
    for title, messages in found.prompts:
        click.echo(f"--- {title}")
        for message in messages:
            click.echo(f"[{message.role}] {message.content}")
    cost = "no price for this model" if found.cost is None else f"${found.cost:.4f} ({DOLLARS})"
    most = f"{found.calls:,} calls, {found.tokens:,} tokens, {cost}"
    click.echo(f"\nat most {most}, if each call is sent once\nnothing was sent")


def exit_if_failed(asker: Asker) -> None:
    """End the command with a code of its own where the provider stopped it; a cap that is reached is no failure."""
    from invsim.live.completion import ProviderError

    if isinstance(asker.stopped, ProviderError):
        click.get_current_context().exit(PROVIDER_FAILED)
