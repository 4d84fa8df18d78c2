"""``invsim calibrate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from invsim.cli.output import print_json, print_rows, progress
from invsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from invsim.calibrate import Calibration, Estimated


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
    from invsim.client.planners.models import PUBLISHED

    for name in models:
        if name not in PUBLISHED:
            raise UnknownNameError("published model", name, PUBLISHED)
    if not 0.0 < confidence < 1.0:
        raise InputError("must be between 0 and 1", where="--confidence", value=confidence)
    if tokens and models:
        raise InputError("the token model is fitted to all models together; name none", where="--tokens")
    chosen = tuple(dict.fromkeys(models)) or PUBLISHED
    parts: list[tuple[str, Callable[[], Any], Callable[[Any], None]]] = []
    if validating:
        parts.append(("validation", lambda: _validated(chosen), _print_validation))
    if tokens:
        parts.append(("tokens", _tokens, _print_tokens))
    if wire:
        parts.append(("wire", lambda: _wire(chosen), _print_wire))
    if not parts:
        parts.append(("calibrations", lambda: _calibrated(chosen, confidence), _print_calibrations))
    found = {name: work() for name, work, _ in parts}
    if as_json:
        print_json({name: _plain(result) for name, result in found.items()})
        return
    for name, _, show in parts:
        show(found[name])


def _plain(result: Any) -> Any:
    if isinstance(result, dict):
        return {name: _plain(each) for name, each in result.items()}
    return [_plain(each) for each in result] if isinstance(result, list | tuple) else result.to_dict()


# Profiles ---------------------------------------------------------------------------------------------------------


def _calibrated(models: Sequence[str], confidence: float) -> list[Calibration]:
    from invsim.calibrate import calibrate as estimate

    found = []
    with progress("models", len(models) if len(models) > 1 else None) as advance:
        for name in models:
            found.append(estimate(name, confidence=confidence))
            if advance:
                advance(1)
    return found


def _print_calibrations(found: Sequence[Calibration]) -> None:
    for each in found:
        share = f"{100 * each.confidence:g}%"
        click.echo(f"{each.model_name}: log likelihood {each.log_likelihood:.3f} of {len(each.residuals)} integers")
        print_rows(
            [
                {
                    "parameter": row.name,
                    "kind": row.kind,
                    "estimate": f"{row.value:.4f}",
                    f"{share} interval": _interval(row),
                    "rests on": f"{len(row.evidence)} integers" if row.free else "",
                    "why": row.why,
                }
                for row in each.parameters
            ]
        )
        off = sorted((r for r in each.residuals if r.z != 0.0), key=lambda r: -abs(r.z) if r.z is not None else -1e9)
        click.echo(f"\n{len(each.residuals) - len(off)} integers are met exactly; the others, farthest first:")
        if off:
            print_rows(
                [
                    {
                        "scenario": r.scenario,
                        "arm": r.arm,
                        "figure": r.metric,
                        "printed": f"{r.printed}",
                        "expected": f"{r.expected:.2f}",
                        "sd": f"{r.sd:.2f}",
                        "z": "cannot happen" if r.z is None else f"{r.z:+.2f}",
                    }
                    for r in off
                ]
            )
        click.echo()


def _interval(row: Estimated) -> str:
    if not row.free:
        return "not identified" if row.name.endswith(".p_stale") and not row.identified else "fixed"
    if not row.identified:
        return "not identified"
    return f"{row.lo:.4f} to {row.hi:.4f}" + (", one-sided" if row.boundary else "")


# Validation -------------------------------------------------------------------------------------------------------


def _validated(models: Sequence[str]) -> dict[str, Any]:
    from invsim.calibrate import accuracy, validate

    rows: list[Any] = []
    with progress("models", len(models) if len(models) > 1 else None) as advance:
        for name in models:
            rows += validate([name])
            if advance:
                advance(1)
    return {"predictions": rows, "accuracy": accuracy(rows)}


def _print_validation(found: dict[str, Any]) -> None:
    click.echo("Fitted to A0, and to the first tries of A1 and A2D; predicted:")
    print_rows(
        [
            {
                "model": each.model,
                "scenario": each.scenario,
                "arm": each.arm,
                "figure": each.metric,
                "printed": f"{each.printed:g}",
                "predicted": f"{each.predicted:.3f}",
                "error": f"{each.error:+.2f}",
                "sd": f"{each.sd:.3f}",
                "z": "cannot happen" if each.z is None else f"{each.z:+.2f}",
            }
            for each in found["predictions"]
        ]
    )
    click.echo("\nErrors in points for first tries and savings, per run for other counts:")
    print_rows(
        [
            {
                "figure": each.metric,
                "figures": each.figures,
                "rmse": f"{each.rmse:.2f}",
                "mean |error|": f"{each.mean_absolute:.2f}",
                "bias": f"{each.bias:+.2f}",
                "within 2 sd": f"{each.within_two} of {each.figures}",
                "largest |z|": f"{each.largest_z:.2f}",
            }
            for each in found["accuracy"]
        ]
    )
    click.echo()


# Tokens -----------------------------------------------------------------------------------------------------------


def _tokens() -> dict[str, Any]:
    from invsim.calibrate import detection_deltas, fit_tokens

    fits = fit_tokens()
    return {"fits": fits, "detection": detection_deltas(fits[-1].costs("claude-haiku-4-5"))}


def _print_tokens(found: dict[str, Any]) -> None:
    click.echo("Costs in base costs of an attempt (± standard error), errors in points of saving (Table 6):")
    print_rows(
        [
            {
                "model": each.name,
                "per retry": _cost(each, "per_retry"),
                "per entry": _cost(each, "per_entry"),
                "conflict": _cost(each, "conflict"),
                "rmse": f"{each.rmse:.2f}",
                "largest": f"{each.largest:.2f}",
            }
            for each in found["fits"]
        ]
    )
    click.echo("\nResiduals of the shipped costs:")
    print_rows(
        [
            {
                "model": each.model,
                "arm": each.arm,
                "printed": f"{each.printed:.3f}",
                "fitted": f"{each.fitted:.3f}",
                "error": f"{each.error:+.2f}",
            }
            for each in found["fits"][-1].residuals
        ]
    )
    click.echo("\nTable 5, which was not fitted: tokens against lazy vectors, in %:")
    print_rows(
        [
            {
                "arm": each.arm,
                "shipped": f"{100 * each.fitted:+.2f}",
                "printed": f"{100 * each.low:+.2f} to {100 * each.high:+.2f}",
                "outside": f"{each.outside:+.2f}",
            }
            for each in found["detection"]
        ]
    )
    click.echo()


def _cost(fit: Any, name: str) -> str:
    value = f"{getattr(fit, name):.4f}"
    return f"{value} ±{fit.se[name]:.4f}" if name in fit.se else value


# Bytes ------------------------------------------------------------------------------------------------------------


def _wire(models: Sequence[str]) -> dict[str, Any]:
    from invsim.calibrate import beside_print, implied, wire_cost

    levels = wire_cost(models=models)
    return {"levels": levels, "beside_print": beside_print(levels[0]), "implied": implied(levels[0])}


def _print_wire(found: dict[str, Any]) -> None:
    click.echo("Responses of the payments stream, by wire level, bytes:")
    print_rows(
        [
            {
                "level": each.level,
                "responses": each.responses,
                "mean": f"{each.mean_bytes:.1f}",
                "contract": f"{each.contract_bytes:.1f}",
                "share": f"{each.contract_share:.3f}",
                "largest": each.largest,
                "fields (bytes, share)": ", ".join(f"{f.field} {f.bytes:.1f} {f.share:.3f}" for f in each.fields),
            }
            for each in found["levels"]
        ]
    )
    click.echo("\nLevel 1 beside the print:")
    print_rows(
        [
            {
                "figure": each.figure,
                "printed": f"{each.printed:.4g}",
                "measured": f"{each.measured:.4g}",
                "difference": f"{each.difference:+.4g}",
                "why": each.reason,
            }
            for each in found["beside_print"]
        ]
    )
    click.echo("\nWhat the printed figures say together:")
    print_rows(
        [
            {"what": each.what, "gives": f"{each.left:.4g}", "beside": f"{each.right:.4g}", "reading": each.reading}
            for each in found["implied"]
        ]
    )
    click.echo()
