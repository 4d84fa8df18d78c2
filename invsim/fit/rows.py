"""A fit as plain rows, for programs, tables and figures."""

from __future__ import annotations

from typing import Any

from invsim.fit.estimates import Key, Pair, Rate, predictive
from invsim.fit.evidence import CELLS
from invsim.fit.fitting import Fit

NOWHERE = (None, None)


def cell_rows(fit: Fit) -> list[dict[str, Any]]:
    """Return the rates of trials, a row for each cell and kind of trial.

    ``lo`` and ``hi`` are Jeffreys', ``cluster_lo`` and ``cluster_hi`` take tasks for what is independent, and
    ``predicted_lo`` and ``predicted_hi`` say within what the number applied should lie if the posterior is right.
    """
    return [{**_key(fit, each.key), "kind": each.kind, **_rate(fit, each)} for each in fit.cells]


def parameter_rows(fit: Fit) -> list[dict[str, Any]]:
    """Return the other parameters of a model, and the retry laws, in the same manner."""
    rates = [
        {**_key(fit, each.key), "parameter": each.parameter, **_rate(fit, each)}
        for each in fit.rates
        if each.parameter not in CELLS
    ]
    laws = [
        {
            **_key(fit, each.key),
            "parameter": each.parameter,
            "trials": each.episodes,
            "counts": list(each.counts),
            "exhausted": each.exhausted,
            "worth": each.worth,
            "status": each.status,
            "reason": each.reason,
        }
        for each in fit.laws
    ]
    return [*rates, *laws]


def _key(fit: Fit, key: Key) -> dict[str, str | None]:
    """Return the columns that tell a cell, the model and the shape in any case."""
    return {"model": None, "shape": None, **dict(zip(fit.by, key, strict=True))}


def _rate(fit: Fit, rate: Rate) -> dict[str, Any]:
    lo, hi = rate.interval or NOWHERE
    cluster_lo, cluster_hi = rate.cluster_interval or NOWHERE
    pooled_lo, pooled_hi = rate.pooled_interval or NOWHERE
    alpha, beta = rate.posterior or NOWHERE
    predicted: Pair | tuple[None, None] = predictive(rate, confidence=fit.confidence) or NOWHERE
    return {
        "trials": rate.trials,
        "applied": rate.applied,
        "rate": rate.rate,
        "lo": lo,
        "hi": hi,
        "clusters": rate.clusters,
        "cluster_lo": cluster_lo,
        "cluster_hi": cluster_hi,
        "worth": rate.worth,
        "pooled": rate.pooled,
        "pooled_lo": pooled_lo,
        "pooled_hi": pooled_hi,
        "alpha": alpha,
        "beta": beta,
        "predicted_lo": predicted[0],
        "predicted_hi": predicted[1],
        "status": rate.status,
        "reason": rate.reason,
    }
