"""The checks that derive: a printed number worked out from other printed numbers, which must be consistent with it.

Each operand may be off by half a unit of its last digit, unless the integers behind it are known. The number has then
no more evidence than its operands, and takes the weakest of their statuses.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace

from invsim.data.published import published
from invsim.paper.audit import Audit, Found, weakest
from invsim.paper.claims import Claim
from invsim.paper.definitions import failed
from invsim.world.wire import Level, account

TOLERANCE = 1e-9

CORNERS = 6
"""Operands up to which every combination of their roundings is tried."""

SIGNS: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


def operand(claim: Claim) -> tuple[float, float]:
    """Return a printed number as it was before rounding, and how far that may be off."""
    if claim.check == "cell":
        scenario, model, arm, metric = claim.about.split("/")
        found = published().get((scenario, model, arm, metric))
        if found is not None and found.count is not None and found.of:
            precise = claim.scale * found.count / found.of
            if abs(precise - claim.value) <= claim.half + TOLERANCE:
                return precise, 0.0
    whole = claim.unit in {"count", "index"} and "." not in claim.printed
    return claim.value, 0.0 if whole else claim.half


def derived(
    audit: Audit, claim: Claim, work: Callable[..., float], operands: Sequence[Claim], *, shown: str = ""
) -> Found:
    """Work a number out from others, over all that their rounding allows; it agrees where the ranges meet."""
    known = [operand(each) for each in operands]
    value = work(*(each for each, _ in known))
    # A function that is monotone in each operand has its extremes at the corners of their ranges. Of many operands only
    # the least and the most are taken, which move no further than one operand may.
    corners = (
        [work(*corner) for corner in itertools.product(*({v - off, v + off} for v, off in known))]
        if len(known) <= CORNERS
        else [value - max(off for _, off in known), value + max(off for _, off in known)]
    )
    low, high = min(corners), max(corners)
    agrees = low - claim.half - TOLERANCE <= claim.value <= high + claim.half + TOLERANCE
    return Found(agrees, weakest(audit[each.id].found.status for each in operands), value, shown=shown)


def _listed(text: str, of: Sequence[Claim]) -> str:
    return f"{text} {', '.join(each.printed for each in of)}"


def restates(audit: Audit, claim: Claim) -> Found:
    """Compare with the number it restates, and take over what was found of that one: both agree, or neither."""
    (other,) = audit.matching(claim.about)
    found = derived(audit, claim, lambda value: value, [other], shown=f"{other.id}: {other.printed}")
    first = audit[other.id].found
    if not found.agrees or claim.unit != other.unit:
        return replace(found, agrees=found.agrees and first.agrees)
    return replace(first, shown=found.shown)


def negates(audit: Audit, claim: Claim) -> Found:
    """Compare with a number of the other sign."""
    return derived(audit, claim, operator.neg, audit.matching(claim.about))


def least(audit: Audit, claim: Claim) -> Found:
    """Take the least of some numbers."""
    mine = audit.matching(claim.about)
    return derived(audit, claim, lambda *values: min(values), mine, shown=_listed("least of", mine))


def most(audit: Audit, claim: Claim) -> Found:
    """Take the most of some numbers."""
    mine = audit.matching(claim.about)
    return derived(audit, claim, lambda *values: max(values), mine, shown=_listed("most of", mine))


def total(audit: Audit, claim: Claim) -> Found:
    """Add some numbers."""
    mine = audit.matching(claim.about)
    return derived(audit, claim, lambda *values: math.fsum(values), mine, shown=_listed("sum of", mine))


def difference(audit: Audit, claim: Claim) -> Found:
    """Take one number from another."""
    return derived(audit, claim, operator.sub, audit.matching(claim.about))


def lag(audit: Audit, claim: Claim) -> Found:
    """Count the episodes between the first one after an event and the alert."""
    return derived(audit, claim, lambda alert, event: alert - event - 1, audit.matching(claim.about))


def same(audit: Audit, claim: Claim) -> Found:
    """Compare with a number that counts the same."""
    (other,) = audit.matching(claim.about)
    return derived(audit, claim, lambda value: value, [other], shown=f"{other.printed} in {other.where}")


def rounded(audit: Audit, claim: Claim) -> Found:
    """Round a number to hundreds."""
    return derived(audit, claim, lambda value: round(value, -2), audit.matching(claim.about))


def how_many(audit: Audit, claim: Claim) -> Found:
    """Count the numbers that are above, below or at a bound."""
    patterns, sign, bound = claim.about.split()
    mine = audit.matching(patterns)
    holds = [each for each in mine if SIGNS[sign](each.value, float(bound))]
    status = weakest(audit[each.id].found.status for each in mine)
    return Found(len(holds) == claim.value, status, len(holds), shown=_listed(f"{len(holds)} of", mine))


def _rows(audit: Audit, prefix: str, arms: Sequence[str]) -> dict[str, list[Claim]]:
    """Return the numbers PREFIX.MODEL.ARM of the models that have all of some arms."""
    rows: dict[str, list[Claim]] = {}
    for claim in audit.matching(f"{prefix}.*.{arms[0]}"):
        model = claim.id.removeprefix(f"{prefix}.").removesuffix(f".{arms[0]}")
        names = [f"{prefix}.{model}.{arm}" for arm in arms]
        if all(name in audit.claims for name in names):
            rows[model] = [audit.claim(name) for name in names]
    return rows


def _counted(audit: Audit, claim: Claim, holds: Callable[..., bool]) -> Found:
    prefix, *arms = claim.about.split()
    rows = _rows(audit, prefix, arms)
    named = [model for model, row in rows.items() if holds(*(each.value for each in row))]
    status = weakest(audit[each.id].found.status for row in rows.values() for each in row)
    return Found(len(named) == claim.value, status, len(named), shown=", ".join(named))


def dropped(audit: Audit, claim: Claim) -> Found:
    """Count the models that fall from above 0 to 0, and where a third arm is named, return."""
    return _counted(
        audit, claim, lambda before, fallen, after=None: before > 0 == fallen and (after is None or after == before)
    )


def fell(audit: Audit, claim: Claim) -> Found:
    """Count the models that fall."""
    return _counted(audit, claim, lambda before, after: after < before)


def _further(audit: Audit, claim: Claim, pick: Callable[..., float]) -> Found:
    prefix, base, *arms = claim.about.split()
    pairs = [row for arm in arms for row in _rows(audit, prefix, [arm, base]).values()]
    mine = [each for row in pairs for each in row]
    return derived(
        audit, claim, lambda *values: pick(values[at] - values[at + 1] for at in range(0, len(values), 2)), mine
    )


def further_least(audit: Audit, claim: Claim) -> Found:
    """Take the largest fall from one arm to any of some others."""
    return _further(audit, claim, min)


def further_most(audit: Audit, claim: Claim) -> Found:
    """Take the largest rise from one arm to any of some others."""
    return _further(audit, claim, max)


def within_of_bounds(audit: Audit, claim: Claim) -> Found:
    """Bound how many episodes of one run some compliances are from 0 or 100."""
    mine = audit.matching(claim.about)
    eligible = int(audit.context.plan("payments").eligible.sum())
    off = max(min(operand(each)[0], 100 - operand(each)[0]) for each in mine) * eligible / 100
    status = weakest(audit[each.id].found.status for each in mine)
    return Found(claim.value - 1 < off <= claim.value, status, off, shown=_listed("from", mine))


def evictions_behind(audit: Audit, claim: Claim) -> Found:
    """Find the evictions of the three runs behind a mean of 1/evictions: the least, the most, or how many had fewer."""
    name, wanted = claim.about.split()
    (precision,) = audit.matching(name)
    runs = [
        counts
        for counts in itertools.combinations_with_replacement(range(1, 5), 3)
        if abs(sum(1 / each for each in counts) / 3 - precision.value) <= precision.half + TOLERANCE
    ]
    shown = f"{precision.printed} is the mean of 1/evictions of {', '.join(map(str, runs)) or 'no three runs'}"
    if len(runs) != 1:
        return Found(False, audit[name].found.status, shown=shown)
    (counts,) = runs
    value = {"least": min(counts), "most": max(counts), "fewer": sum(each < max(counts) for each in counts)}[wanted]
    return Found(value == claim.value, audit[name].found.status, value, shown=shown)


def two_streams(audit: Audit, claim: Claim) -> Found:
    """Split the runs into those of the payments episodes and those of recipes; the episodes must come out."""
    (runs,) = audit.matching(claim.about)
    short, long = (len(audit.context.plan(name).episodes) for name in ("payments", "recipes"))
    recipes, over = divmod(claim.value - short * runs.value, long - short)
    split = f"{runs.value - recipes:.0f} runs of {short} and {recipes:.0f} of {long}"
    fit = over == 0 and 0 <= recipes <= runs.value
    return Found(fit, audit[runs.id].found.status, claim.value if fit else None, shown=split if fit else "no split")


def fewer(audit: Audit, claim: Claim) -> Found:
    """Turn two percentages over one base into how much less the second is than the first."""
    return derived(audit, claim, lambda more, less: 100 * (more - less) / (100 + more), audit.matching(claim.about))


def share(audit: Audit, claim: Claim) -> Found:
    """Divide one number by another, in percent."""
    mine = audit.matching(claim.about)
    return derived(
        audit, claim, lambda part, whole: 100 * part / whole, mine, shown=f"{mine[0].printed}/{mine[1].printed}"
    )


def mixed(audit: Audit, claim: Claim) -> Found:
    """Spread a mean over some responses over all of them."""
    mine = audit.matching(claim.about)
    return derived(audit, claim, lambda mean, some, every: mean * some / every, mine, shown=_listed("of", mine))


def envelope_share(audit: Audit, claim: Claim) -> Found:
    """Work out the share of all bytes in the version dictionary, were it on every response with contract fields."""
    mine = audit.matching(claim.about)
    found = derived(
        audit, claim, lambda size, some, every, mean: 100 * size * some / every / mean, mine,
        shown=_listed("from", mine),
    )  # fmt: skip
    size, some, every, mean = (each.value for each in mine)
    carried = claim.value / 100 * mean / size
    shown = f"on {some / every:.1%} of responses it would be {found.value:.1f}%; so it was on {carried:.1%}"
    return Found(found.agrees, found.status, found.value, shown=shown)


def in_proportion(audit: Audit, claim: Claim) -> Found:
    """Work out a share of bytes from that of another field, which as many responses carry."""
    return derived(
        audit, claim, lambda portion, size, *fields: portion * sum(fields) / size, audit.matching(claim.about)
    )


def largest_addition(audit: Audit, claim: Claim) -> Found:
    """Add up the contract's bytes on a failed funding request: printed dictionary, both fields, three commas."""
    (envelope,) = audit.matching(claim.about)
    found = account(failed(audit.context, Level.L1)).fields
    inner = found["cache_hint"] + found["table"]
    shown = f"{envelope.printed} + {found['cache_hint']} + {found['table']} + 3 separators"
    return derived(audit, claim, lambda size: size + inner + 3, [envelope], shown=shown)


def plateau(audit: Audit, claim: Claim) -> Found:
    """Find the number of rotations at which the gap between A2D and A1, both printed, is smaller than before."""
    gaps = {
        2: operand(audit.claim(f"{claim.about}.A2D.2"))[0] - operand(audit.claim(f"{claim.about}.low"))[0],
        3: operand(audit.claim(f"{claim.about}.A2D.3"))[0] - operand(audit.claim(f"{claim.about}.high"))[0],
    }
    mine = audit.matching(f"{claim.about}.A2D.* {claim.about}.low {claim.about}.high")
    status = weakest(audit[each.id].found.status for each in mine)
    eligible = {at: int(audit.context.plan(f"frequency-{at}").eligible.sum()) for at in (1, 2, 3)}
    shown = (
        f"gap {gaps[2]:.1f} at 2, {gaps[3]:.1f} at 3; of {eligible[1]}, {eligible[2]} and {eligible[3]} eligible "
        "episodes, those before the first rotation weigh ever more"
    )
    value = 3 if gaps[3] < gaps[2] else None
    return Found(value == claim.value, status, value, shown=shown)


CHECKS: dict[str, Callable[[Audit, Claim], Found]] = {
    "restates": restates,
    "negates": negates,
    "least": least,
    "most": most,
    "sum": total,
    "difference": difference,
    "lag": lag,
    "same": same,
    "rounded": rounded,
    "how_many": how_many,
    "dropped": dropped,
    "fell": fell,
    "further_least": further_least,
    "further_most": further_most,
    "within_of_bounds": within_of_bounds,
    "evictions_behind": evictions_behind,
    "two_streams": two_streams,
    "fewer": fewer,
    "share": share,
    "mixed": mixed,
    "envelope_share": envelope_share,
    "in_proportion": in_proportion,
    "largest_addition": largest_addition,
    "plateau": plateau,
}
