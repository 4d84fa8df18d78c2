"""A fit as model files, each line with its evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from invsim.client.planners.models import model_names
from invsim.client.planners.posterior import unseen_conflict
from invsim.errors import InputError, UnknownNameError, one_line
from invsim.fit.estimates import PRIOR, Pair, Rate
from invsim.fit.fitting import Fit, Law
from invsim.stats.pooling import pool
from invsim.world.wire import Shape

HEAD = """\
# Fitted to trials, with the evidence behind each line. {{ alpha, beta }} is the posterior of a rate; {{ counts,
# exhausted }} are failed first tries by the retry that recovered them (prior: one episode spread evenly). invsim run
# draws from both. What is not identified takes a default: p_apply the rate after an error, or else the prior
# Beta(1/2, 1/2); p_stale that of p_apply, and p_fresh half of it; p_unaided 0; retry {{ q = 1.0 }}; retry_injected as
# retry.
{notes}name = {name}
title = {title}
source = {source}
"""
UNKNOWN: Pair = (PRIOR, PRIOR)
HALF, ALIKE = "half as often as p_apply, worth one trial", "as p_apply, with draws of its own"
"""What p_fresh and p_stale are taken for where nothing tells."""


def write_model(fit: Fit, model: str, path: Path) -> None:
    """Write the file of one model; see ``model_text``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(model_text(fit, model), encoding="utf-8")


def model_text(fit: Fit, model: str) -> str:
    """Return a model as TOML: a section a shape, or a class, with posteriors and the evidence of each line.

    A model of a shipped name gets "-fitted" behind it: published figures must not stand beside another's.

    Raises
    ------
    UnknownNameError
        A model that was not fitted.
    InputError
        A fit by more than the model and its shapes or its classes.
    """
    if model not in fit.model_names:
        raise UnknownNameError("fitted model", model, fit.model_names)
    others = [name for name in fit.by if name != "model"]
    if others not in ([], ["shape"], ["constraint"]):
        what = "a model file has a section a shape or a class: fit by model and shape, or by model and constraint"
        raise InputError(what, value=",".join(fit.by))
    at = fit.by.index("model")
    mine = [each for each in fit.rates if each.key[at] == model]
    sections = list(dict.fromkeys(each.key for each in mine))
    known = {str(shape) for shape in Shape}
    shown = [key for key in sections if others != ["shape"] or key[1 - at] in known]
    hidden = [key[1 - at] for key in sections if key not in shown]
    trials = sum(each.trials for each in mine if each.parameter in {"p_apply", "p_stale", "recovery"})
    note = f"# No section can say how these shapes are met: {', '.join(hidden)}.\n" if hidden else ""
    lines = HEAD.format(
        notes=one_line(note.rstrip("\n")) + "\n" if note else "",
        name=_text(f"{model}-fitted" if model in model_names() else model),
        title=_text(f"{model}: fitted to {trials:,} trials"),
        source=_text("fitted to counts of trials; see each line"),
    )
    if others:
        lines += "\n[default]\n" + "".join(f"{line}\n" for line in _default(fit, shown))
    for key in shown:
        head = f"[{'shape' if others == ['shape'] else 'class'}.{_key(key[1 - at])}]" if others else "[default]"
        lines += f"\n{head}\n" + "".join(f"{line}\n" for line in _section(fit, key))
    return lines


def _section(fit: Fit, key: tuple[str, ...]) -> Iterator[str]:
    apply, stand_in = fit.rate("p_apply", *key), fit.rate("recovery", *key)
    if apply.posterior is not None:
        chosen, why = apply.posterior, _evidence(fit, apply, "valid fixes applied")
    elif stand_in.posterior is not None:
        chosen = stand_in.posterior
        why = f"{_missing(apply)}: the rate after an error, {_evidence(fit, stand_in, 'hints applied')}"
    else:
        chosen, why = UNKNOWN, f"{_missing(apply)}: the prior"
    yield _line("p_apply", _beta(chosen), why)
    fresh = fit.rate("p_fresh", *key)
    yield _line(
        "p_fresh",
        *_rate(
            fit,
            fresh,
            "first tries with a stale beside a valid fix succeeded",
            unseen_conflict(*chosen),
            HALF,
        ),
    )
    stale = fit.rate("p_stale", *key)
    yield _line("p_stale", *_rate(fit, stale, "stale fixes applied", chosen, ALIKE))
    yield _unaided(fit, key)
    plain, injected = fit.law("retry", *key), fit.law("retry_injected", *key)
    yield _line("retry", *_law(plain)) if plain.status == "ok" else _line("retry", "{ q = 1.0 }", f"{_missing(plain)}")
    if injected.status == "ok":
        yield _line("retry_injected", *_law(injected))
    else:
        yield f"# retry_injected: {one_line(_missing(injected))}: as retry"


def _rate(fit: Fit, rate: Rate, what: str, otherwise: Pair, named: str) -> tuple[str, str]:
    if rate.posterior is not None:
        return _beta(rate.posterior), _evidence(fit, rate, what)
    return _beta(otherwise), f"{_missing(rate)}: {named}"


def _unaided(fit: Fit, key: tuple[str, ...]) -> str:
    whole, first, repeat = (fit.rate(name, *key) for name in ("p_unaided", "p_unaided_first", "p_unaided_repeat"))
    what = "first tries without a fix succeeded"
    if first.trials and repeat.trials and first.trials + repeat.trials == whole.trials:
        assert first.posterior is not None
        assert repeat.posterior is not None
        value = f"{{ first = {_beta(first.posterior)}, repeat = {_beta(repeat.posterior)} }}"
        return _line(
            "p_unaided", value, f"first: {_evidence(fit, first, what)}; repeat: {_evidence(fit, repeat, what)}"
        )
    if whole.posterior is not None:
        return _line("p_unaided", _beta(whole.posterior), _evidence(fit, whole, what))
    return _line("p_unaided", "0.0", _missing(whole))


def _law(law: Law) -> tuple[str, str]:
    scale = law.worth / law.episodes
    counts = ", ".join(f"{each * scale:.6g}" for each in law.counts)
    value = f"{{ counts = [{counts}], exhausted = {law.exhausted * scale:.6g} }}"
    said = f"{law.episodes} failed first tries: {', '.join(map(str, law.counts))} recovered at retry 1, 2, 3, 4"
    worth = "" if scale > 1 - 1e-9 else f"; worth {law.worth:.1f} independent episodes"
    return value, f"{said}, {law.exhausted} never{worth}"


def _default(fit: Fit, keys: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Say what holds of a shape or a class that was not seen."""
    seen = [each for each in (fit.rate("p_apply", *key) for key in keys) if each.trials]
    chosen, what = UNKNOWN, "nothing seen: the prior"
    if fit.pooled and seen:
        n = [*(each.worth for each in seen), 0.0]
        x = [*(each.worth * (each.rate or 0.0) for each in seen), 0.0]
        alpha, beta = pool(x, n).matched()
        chosen, what = (float(alpha[-1]), float(beta[-1])), f"what the {len(seen)} seen let expect of another"
    yield _line("p_apply", _beta(chosen), what)
    yield _line("p_fresh", _beta(unseen_conflict(*chosen)), HALF)
    yield _line("p_stale", _beta(chosen), ALIKE)


def _evidence(fit: Fit, rate: Rate, what: str) -> str:
    if not rate.trials:
        return f"{_missing(rate)}: what the other models let expect"
    said = f"{rate.applied} of {rate.trials} {what}"
    if rate.interval is not None:
        said += f", {fit.confidence:.0%} {rate.interval[0]:.3f} to {rate.interval[1]:.3f}"
    if rate.clusters is not None:
        said += f", {rate.clusters} task{'s' * (rate.clusters != 1)}"
    if rate.worth < rate.trials * (1 - 1e-9):
        said += f", worth {rate.worth:.1f} independent trials"
    return said + (", pooled over models" if rate.pooled is not None else "")


def _missing(found: Rate | Law) -> str:
    return f"not identified, {found.reason}"


def _line(name: str, value: str, evidence: str) -> str:
    return f"{name} = {value}    # {one_line(evidence)}"


def _beta(pair: Pair) -> str:
    return f"{{ alpha = {pair[0]:.6g}, beta = {pair[1]:.6g} }}"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    """Return a TOML string; what would not show in it is spelt out."""
    return json.dumps(one_line(value), ensure_ascii=False)
