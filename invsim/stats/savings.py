"""The savings equation, what it leaves out, and when that matters.

Without memory episode t costs b retries on average: g is the probability that its first try succeeds, m the expected
retries after one that fails, b = (1 - g) m. (All of g, m, b depend on t.) So a first try that memory brings about saves
w = b. An episode is addressable, with probability a, when its key has completed before; then memory may inject a fix
that is valid only (v), stale and valid in conflict (c) or stale only (s). For each kind k let n be its probability, h
that of the kind and a first try, f = n - h that of the kind and a failed one, r the expectation of (retries, if that
kind). The savings equation is

    product = S_max V C,   S_max = sum a w,   V = sum n_v w / S_max,   C = sum h_v w / sum n_v w

and what memory saves is realised = sum (b - E retries). Since n b - r = h w - f g m - (r - f m) for every kind,

    realised = product + conflicts + stale + refusals + recovery + uninjected
    conflicts   =  sum h_c w                                 (a) first tries with stale and fresh both injected
    stale       =  sum h_s w - f_s g m  -  sum f_c g m       (b) stale fixes applied where g might have solved it
    refusals    = -sum f_v g m                               (b') valid fixes not applied, nor the task solved unaided
    recovery    = -sum over kinds of (r - f m)               (c) longer recovery where a fix was injected
    uninjected  =  sum b (1 - n_v - n_c - n_s) - E (retries, if nothing injected)

holds identically. For a planner made of rates, with p_stale the chance that a lone stale fix is applied, the first
part of ``stale`` is -p_stale g m n_s. ``uninjected`` is 0 in expectation for any planner that acts alike with and
without a memory that has nothing for it, on first occurrences and repeats, completed before or not: that is why no
term for first occurrences, repeated keys or unaddressable episodes is needed. A Monte Carlo estimate of it is noise.

Two further readings of the equation are off by terms of their own, given beside it:

    completion  = (S_sched - S_max) V C   with S_sched the sum of w over all repeats of a key, as if all had completed
    covariance  = product - S_max V C'    with C' = sum of S_max C over classes / sum of S_max, the marginal compliance

(Wu and Canedo 2026, section 3.6, give the product.) Where g = 1 an episode tells nothing of m; m is then what a failure
costs with a fix injected, so that the whole loss is one of successes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from invsim.stats.costs import TokenCosts

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

KINDS = ("valid", "conflict", "stale")
TERMS = ("conflicts", "stale", "refusals", "recovery", "uninjected")
TOTAL = "all classes"


@dataclass(frozen=True)
class EpisodeMeans:
    """Expectations per episode: all that the savings equation needs, known or estimated.

    Parameters
    ----------
    classes : tuple of str
    class_index : ndarray of int, shape (episodes,)
    repeated : ndarray of bool, shape (episodes,)
        Whether an earlier episode had the same key.
    baseline_retries, baseline_first_try : ndarray, shape (episodes,)
        Without memory.
    retries, addressable, entries, conflict_attempts : ndarray, shape (episodes,)
        With memory; entries in the injected blocks, summed over attempts.
    probability, first_try, kind_retries : ndarray, shape (3, episodes)
        Per kind of ``KINDS``: its probability, that of (kind and first try), expectation of (retries, if kind).
    """

    classes: tuple[str, ...]
    class_index: Ints
    repeated: Mask
    baseline_retries: Floats
    baseline_first_try: Floats
    retries: Floats
    addressable: Floats
    entries: Floats
    conflict_attempts: Floats
    probability: Floats
    first_try: Floats
    kind_retries: Floats


@dataclass(frozen=True)
class Saving:
    """The savings equation over some episodes, per stream; all but the two rates in retries.

    Parameters
    ----------
    s_max, scheduled : float
        S_max, and S_max had every key completed by its first repeat.
    validity, compliance : float or None
        V and C; None where there is nothing to weigh.
    product, conflicts, stale, refusals, recovery, uninjected, realised : float
        See the notes of this module.
    """

    s_max: float
    scheduled: float
    validity: float | None
    compliance: float | None
    product: float
    conflicts: float
    stale: float
    refusals: float
    recovery: float
    uninjected: float
    realised: float

    @property
    def corrections(self) -> dict[str, float]:
        """What the product leaves out, by name."""
        return {name: getattr(self, name) for name in TERMS}

    @property
    def residual(self) -> float:
        """What the identity leaves: 0 but for rounding."""
        return self.realised - math.fsum([self.product, *self.corrections.values()])

    @property
    def completion(self) -> float:
        """What the product promises too much where every repeat is taken to be addressable."""
        return (self.scheduled - self.s_max) * (self.validity or 0.0) * (self.compliance or 0.0)

    def scaled(self, factor: float) -> Saving:
        """Return the same in another unit, so many to the retry."""
        rates = {"validity", "compliance"}
        return replace(
            self, **{each.name: getattr(self, each.name) * factor for each in fields(self) if each.name not in rates}
        )


@dataclass(frozen=True)
class Savings:
    """The savings equation by class and in total.

    Parameters
    ----------
    by_class : mapping of class to Saving
    total : Saving
    marginal_compliance : float or None
        C' over the classes that have one.
    covariance : float
        What the product with C' misses: S_max Cov(V, C) over classes weighted by S_max.
    """

    by_class: Mapping[str, Saving]
    total: Saving
    marginal_compliance: float | None
    covariance: float

    @property
    def marginal_product(self) -> float:
        """The product with marginal compliance."""
        return self.total.product - self.covariance

    def figures(self) -> dict[str, dict[str, float | None]]:
        """Return plain numbers, by class and then name; the total under ``TOTAL``."""
        found = {
            name: {each.name: getattr(saving, each.name) for each in fields(saving)} | {"completion": saving.completion}
            for name, saving in (*self.by_class.items(), (TOTAL, self.total))
        }
        found[TOTAL] |= {
            "marginal_compliance": self.marginal_compliance,
            "marginal_product": self.marginal_product,
            "covariance": self.covariance,
        }
        return found


def savings(means: EpisodeMeans) -> Savings:
    """Return the product, every correction and what memory saves, by class and in total."""
    masks = {name: means.class_index == at for at, name in enumerate(means.classes)}
    by_class = {name: _saving(means, mask) for name, mask in masks.items()}
    total = _saving(means, np.ones(len(means.class_index), dtype=np.bool_))
    scored = [each for each in by_class.values() if each.compliance is not None]
    weight = math.fsum(each.s_max for each in scored)
    marginal = math.fsum(each.s_max * (each.compliance or 0.0) for each in scored) / weight if weight > 0 else None
    covariance = total.product - total.s_max * (total.validity or 0.0) * (marginal or 0.0)
    return Savings(by_class, total, marginal, covariance)


def _saving(means: EpisodeMeans, mask: Mask) -> Saving:
    b, g = means.baseline_retries[mask], means.baseline_first_try[mask]
    n, h, r = (each[:, mask] for each in (means.probability, means.first_try, means.kind_retries))
    f = n - h
    m = _after_failure(b, 1.0 - g, r.sum(axis=0), f.sum(axis=0))
    missed = f * g * m
    valid, conflict, stale = h * b
    s_max = float(means.addressable[mask] @ b)
    validated = float(n[0] @ b)
    idle = b * (1.0 - n.sum(axis=0)) - (means.retries[mask] - r.sum(axis=0))
    product = float(valid.sum())
    return Saving(
        s_max=s_max,
        scheduled=float(means.repeated[mask] @ b),
        validity=validated / s_max if s_max > 0 else None,
        compliance=product / validated if validated > 0 else None,
        product=product,
        conflicts=float(conflict.sum()),
        stale=float(stale.sum() - missed[1:].sum()),
        refusals=0.0 - float(missed[0].sum()),
        recovery=0.0 - float((r - f * m).sum()),
        uninjected=float(idle.sum()),
        realised=float((b - means.retries[mask]).sum()),
    )


def _after_failure(b: Floats, failing: Floats, retries: Floats, failures: Floats) -> Floats:
    """Return m: b / (1 - g), or where nothing fails without memory, the retries of a failure with a fix injected."""
    bare = failing > 0
    over, under = np.where(bare, b, retries), np.where(bare, failing, failures)
    return np.divide(over, under, out=np.zeros_like(b), where=under > 0)


# In tokens or money ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Priced:
    """A saving in tokens, in units of an attempt's base cost, or in money.

    Parameters
    ----------
    saving : Saving
        Every term in that unit.
    carrying : float
        Minus what the injected blocks cost.
    conflict : float
        Minus the extra of attempts that carry a stale and a fresh entry.
    """

    saving: Saving
    carrying: float
    conflict: float

    @property
    def net(self) -> float:
        """What is saved when memory has been paid for."""
        return self.saving.realised + self.carrying + self.conflict


def priced(means: EpisodeMeans, costs: TokenCosts, *, price: float = 1.0) -> dict[str, Priced]:
    """Return the savings by class, and the total under ``TOTAL``, at what retries and entries cost.

    Parameters
    ----------
    means : EpisodeMeans
    costs : TokenCosts
    price : float
        Of an attempt's base cost; 1 leaves the result in units of it.
    """
    found = savings(means)
    retry = price * (costs.base + costs.per_retry)
    result = {}
    for name, saving in (*found.by_class.items(), (TOTAL, found.total)):
        mask = means.class_index == means.classes.index(name) if name in found.by_class else slice(None)
        carrying = 0.0 - price * costs.per_entry * float(means.entries[mask].sum())
        conflict = 0.0 - price * costs.conflict * float(means.conflict_attempts[mask].sum())
        result[name] = Priced(saving.scaled(retry), carrying, conflict)
    return result


# In words --------------------------------------------------------------------------------------------------------

_WHY = {
    "conflicts": "the planner picks the fresh fix out of a conflict",
    "stale": "stale fixes are applied to tasks that it might have solved unaided",
    "refusals": "a valid fix that is not applied keeps it from solving the task unaided",
    "recovery": "recovery takes {more} retries where a fix was injected and the first try failed",
    "uninjected": "episodes without a fix cost other than without memory (chance, unless the planner is odd)",
}


def misleads(saving: Saving, *, absolute: float = 0.05, relative: float = 0.1) -> bool:
    """Return whether the product is off by more than both tolerances.

    ``absolute`` is in retries, ``relative`` a share of what memory really saves; a wrong sign is beyond any share.
    """
    off = abs(saving.product - saving.realised)
    wrong_sign = saving.product * saving.realised < 0
    return off > absolute and (wrong_sign or off > relative * abs(saving.realised))


def verdict(found: Savings, *, absolute: float = 0.05, relative: float = 0.1) -> list[str]:
    """Say, class by class and in total, what the product is worth; one sentence each.

    Classes in which nothing can be saved are passed over.
    """
    lines = []
    for name, saving in (*found.by_class.items(), (TOTAL, found.total)):
        if saving.s_max == 0 and abs(saving.realised) < 1e-9:
            continue
        wrong = misleads(saving, absolute=absolute, relative=relative)
        said, true = _signed(saving.product), _signed(saving.realised)
        if not wrong:
            lines.append(
                f"{name}: the product, {said} retries a stream, holds within {relative:.0%}: memory saves {true}"
            )
            continue
        parts = sorted(saving.corrections.items(), key=lambda item: -abs(item[1]))
        why = "; ".join(_because(term, value) for term, value in parts if abs(value) > absolute)
        costs = saving.realised < 0 < saving.product
        what = f"but memory costs {abs(saving.realised):.2f}" if costs else f"but memory saves {true}"
        lines.append(f"{name}: the product misleads: it says {said} retries a stream, {what}: {why}")
    if abs(found.covariance) > max(absolute, relative * abs(found.total.product)):
        lines.append(
            f"{TOTAL}: with compliance averaged over classes the product would be {_signed(found.marginal_product)}, "
            f"for validity and compliance go together across classes (covariance {_signed(found.covariance)})"
        )
    if found.total.completion > max(absolute, relative * abs(found.total.product)):
        lines.append(
            f"{TOTAL}: not every key completes before it comes again: counting all repeats as addressable would "
            f"promise {_signed(found.total.completion)} more"
        )
    return lines


def _because(term: str, value: float) -> str:
    return f"{_WHY[term].format(more='more' if value < 0 else 'fewer')} ({_signed(value)})"


def _signed(value: float) -> str:
    return f"{value:+.2f}"
