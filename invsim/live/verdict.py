"""From a preflight's counts to a model file, and from the model to what memory would save with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from invsim.client.arms import A0, Arm
from invsim.client.planners.models import parse_model
from invsim.client.planners.posterior import unseen_conflict
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.live.preflight import Measured
from invsim.located import Source
from invsim.sim.plan import Plan
from invsim.uncertain import exact_draws
from invsim.world.wire import Shape

DRAWS = 200
"""Draws from the posterior that a prediction is averaged over."""

WORTH = 0.01
"""Share of the tokens that a memory must save to be worth having; any model that ever applies a fix saves a trifle."""

PRIOR = 0.5
"""Jeffreys' prior of a rate: Beta(1/2, 1/2)."""

PREDICTED = ("token_saving", "attempts_saving", "compliance_given_valid")


@dataclass(frozen=True)
class Prediction:
    """What an arm is predicted to come to; each metric as mean and 95% interval over the posterior, None if undefined.

    ``pays`` is the probability that the arm's expected token saving is above ``WORTH``.
    """

    arm: str
    metrics: dict[str, tuple[float, float, float] | None]
    pays: float | None

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        shown = {
            name: None if each is None else {"mean": each[0], "interval": [each[1], each[2]]}
            for name, each in self.metrics.items()
        }
        return {"arm": self.arm, **shown, "probability_that_it_pays": self.pays}


def model_text(found: Measured) -> str:
    """Return the posterior as a model file.

    ``p_apply`` and ``p_unaided`` of each shape are Beta posteriors of the calls, the retry law one of the episodes gone
    on with. What a preflight does not measure is said to be unknown: a shape that was not asked for, and what happens
    with a stale fix beside a fresh one, see ``unseen_conflict``. A stale fix alone looks to a planner as a valid one
    does, so its rate is taken to be the same.
    """
    settings = found.asker.settings
    name = f"{settings.model} (preflight, {found.level})"
    lines = [
        "# Estimated by a compliance preflight: beta posteriors under Jeffreys' prior, prior included.",
        f"name = {_text(name)}",
        f"source = {_text(f'{found.cases} preflight cases, consumption {found.level}')}",
        "",
        "[default]",
        *_rates(None, None),
        f"retry = {{ counts = {found.recovered}, exhausted = {found.exhausted} }}",
    ]
    for shape in Shape:
        valid, nothing = (found.cell(shape, injected=injected) for injected in (True, False))
        if valid is not None and nothing is not None:
            lines += ["", f'[shape."{shape}"]', *_rates((valid.applied, valid.of), (nothing.applied, nothing.of))]
    return "\n".join(lines) + "\n"


def _rates(valid: tuple[int, int] | None, nothing: tuple[int, int] | None) -> list[str]:
    applied, unaided = _posterior(valid), _posterior(nothing)
    rates = {"p_apply": applied, "p_fresh": unseen_conflict(*applied), "p_stale": applied, "p_unaided": unaided}
    return [f"{name} = {{ alpha = {alpha!r}, beta = {beta!r} }}" for name, (alpha, beta) in rates.items()]


def _posterior(counts: tuple[int, int] | None) -> tuple[float, float]:
    hits, of = counts or (0, 0)
    return hits + PRIOR, of - hits + PRIOR


def _text(value: str) -> str:
    """Return a TOML string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def fitted(found: Measured) -> ProbabilisticModel:
    """Return the posterior as a model."""
    return parse_model(Source("the preflight's model", model_text(found)))


def predict(
    plan: Plan,
    model: ProbabilisticModel,
    *,
    arms: Sequence[Arm],
    draws: int = DRAWS,
    seed: int = 1,
) -> list[Prediction]:
    """Return what each arm saves on a plan: the exact engine, once a draw of the model's parameters.

    Parameters
    ----------
    plan : Plan
    model : ProbabilisticModel
    arms : sequence of Arm
        A0 is left out: it is what the others are held against.
    draws : int
    seed : int
    """
    import numpy as np

    chosen = [each for each in arms if each is not A0]
    values: dict[str, dict[str, list[float]]] = {each.name: {name: [] for name in PREDICTED} for each in chosen}
    for result in exact_draws(plan, [model.drawn(seed, at) for at in range(draws)], chosen):
        for each in result.arms:
            for name in PREDICTED:
                if (value := each.metrics[name].value) is not None:
                    values[each.arm][name].append(value)
    found = []
    for arm, metrics in values.items():
        shown = {
            name: None
            if not each
            else (float(np.mean(each)), float(np.quantile(each, 0.025)), float(np.quantile(each, 0.975)))
            for name, each in metrics.items()
        }
        saved = metrics["token_saving"]
        found.append(Prediction(arm, shown, float(np.mean(np.array(saved) > WORTH)) if saved else None))
    return found
