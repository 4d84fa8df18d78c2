"""``invsim calibrate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from invsim.cli.output import print_json, print_rows, progress
from invsim.errors import InputError, UnknownNameError


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--validate", "validating", is_flag=True, help="Fit A0, A1 and A2D only, and predict the rest.")
@click.option("--tokens", is_flag=True, help="Fit the token model to the printed savings.")
@click.option("--wire", is_flag=True, help="Weigh the server's responses beside the printed bytes.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the tables.")
def calibrate(
    models: Sequence[str], validating: bool, tokens: bool, wire: bool, confidence: float, as_json: bool
) -> None:
    """Estimate published profiles from the integers that the paper prints, with intervals and residuals.

    The likelihood is exact: the probability of all integers of a model together. Without MODEL, all seven; that takes
    minutes. --validate, --tokens and --wire print their own results in place of the estimates.

    \b
    Example:
      invsim calibrate gpt-5-mini
      invsim calibrate --tokens
    """
    from functools import partial

    from invsim.calibrate import calibrate as estimate
    from invsim.client.planners.models import PUBLISHED
    from invsim.paper import calibration

    for name in models:
        if name not in PUBLISHED:
            raise UnknownNameError("published model", name, PUBLISHED)
    if not 0.0 < confidence < 1.0:
        raise InputError("must be between 0 and 1", where="--confidence", value=confidence)
    if tokens and models:
        raise InputError("the token model is fitted to all models together; name none", where="--tokens")
    chosen = tuple(dict.fromkeys(models)) or PUBLISHED
    reports = []
    if validating:
        reports.append(calibration.predictions(calibration.joined(_each(calibration.predicted, chosen))))
    if tokens:
        reports.append(calibration.token_costs())
    if wire:
        reports.append(calibration.byte_costs(chosen))
    if not reports:
        reports.append(calibration.estimates(_each(partial(estimate, confidence=confidence), chosen)))
    if as_json:
        print_json({report.name: report.data for report in reports})
        return
    for report in reports:
        for section in report.sections:
            click.echo(section.title)
            if section.rows:
                print_rows(section.rows)
            click.echo()


def _each(work: Callable[[str], Any], models: Sequence[str]) -> list[Any]:
    from invsim.paper.calibration import each_model

    with progress("models", len(models) if len(models) > 1 else None) as advance:
        return each_model(work, models, advance)
