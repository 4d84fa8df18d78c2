"""The audit in files: every number as CSV, and for people by status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from invsim.paper.audit import Judgement
from invsim.paper.checks import exact_integers
from invsim.paper.claims import MEANINGS
from invsim.paper.context import Context
from invsim.paper.render import Record, markdown_table, plain, to_csv
from invsim.paper.sheets import audit_of

RULES = """\
A number is *exact* if the exact engine gives it a standard deviation of 0 and it rounds to the print; that covers
counts that are certain only because a profile's probability is fitted at 0 or 1. A number that varies is *fitted* if
`data/evidence.csv` lists it among what its model's profile, or the token costs, were fitted to, else *within*. An
integer behind a printed rate must round to the print, whatever the model says. A number that follows from other printed
numbers is worked out from them and takes the weakest of their statuses.

Left out are numbers that name and do not measure: those of sections, tables, figures, equations, footnotes, levels,
models, citations, standards and years; codes and versions inside identifiers; those of a hypothetical example; and
small number words used as pronouns."""


@dataclass(frozen=True)
class Audited:
    """The audit as plain data.

    Parameters
    ----------
    summary : mapping of str to int
        How many numbers there are, and how many of each status.
    drifted : tuple of (int, int)
        Integers behind the cells of the drifted stream, and how many of them are exact.
    records : tuple of mapping
        One for every number.
    """

    summary: Mapping[str, int]
    drifted: tuple[int, int]
    records: tuple[Record, ...]


def audited(context: Context) -> Audited:
    """Return the audit of a computation."""
    audit = audit_of(context)
    return Audited(audit.summary(), exact_integers(audit), tuple(map(row, audit.judgements())))


def row(each: Judgement) -> Record:
    """Return a judgement as plain data; numbers are in the unit of the print."""
    claim, found = each.claim, each.found
    return {
        "id": claim.id,
        "status": each.status,
        "where": claim.where,
        "what": claim.what,
        "published": claim.printed,
        "unit": claim.unit,
        "value": found.value,
        "simulated": found.simulated.value,
        "se": found.simulated.se,
        "exact": found.exact,
        "sd": found.sd,
        "difference": each.difference,
        "z": found.z,
        "check": f"{claim.check} {claim.about}".strip(),
        "shown": found.shown,
        "fits_to": found.fits_to,
        "reason": each.reason,
    }


def written(audit: Audited) -> dict[str, bytes]:
    """Return the files of the audit."""
    return {"audit.csv": to_csv(audit.records).encode(), "audit.md": to_markdown(audit).encode()}


def to_markdown(audit: Audited) -> str:
    """Return the audit for people: how many, the contradictions, what cannot be worked out, and every number."""
    lines = ["# Every number that the paper prints", "", RULES, ""]
    counts = [[status, str(audit.summary[status]), MEANINGS[status]] for status in MEANINGS]
    lines += markdown_table(["status", "numbers", "meaning"], [*counts, ["total", str(audit.summary["total"]), ""]])
    total, exact = audit.drifted
    known = sum(each["status"] == "exact" and bool(each["fits_to"]) for each in audit.records)
    lines += [
        "",
        f"Of the {audit.summary['exact']} exact numbers a profile was fitted to {known} (`fits_to` in audit.csv): "
        "their agreement is no evidence for it either.",
        "",
        f"Of the {total} integers behind what is printed of the drifted stream, {exact} are exact.",
    ]
    for status in ("unexplained", "contradicts", "input"):
        mine = [each for each in audit.records if each["status"] == status]
        if mine:
            lines += ["", f"## {status}", "", *markdown_table(*_reasons(mine))]
    for status in ("within", "fitted", "exact", "structural"):
        mine = [each for each in audit.records if each["status"] == status]
        if mine:
            lines += ["", f"## {status}", "", *markdown_table(*_numbers(mine))]
    return "\n".join(lines) + "\n"


def _reasons(mine: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    columns = ["where", "what", "printed", "worked out", "reason"]
    rows = [
        [str(each["where"]), str(each["what"]), _printed(each), short(each["value"]), because(each)] for each in mine
    ]
    return columns, rows


def _numbers(mine: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    columns = ["where", "what", "printed", "worked out", "sd", "z", "how"]
    rows = [
        [
            str(each["where"]), str(each["what"]), _printed(each), short(each["value"]), short(each["sd"]),
            short(each["z"]), str(each["shown"] or f"`{each['check']}`"),
        ]
        for each in mine
    ]  # fmt: skip
    return columns, rows


def _printed(each: Record) -> str:
    unit = {"%": "%", "points": " points", "bytes": " bytes", "thousand": "k"}.get(str(each["unit"]), "")
    return f"{each['published']}{unit}"


def because(each: Record) -> str:
    """Return why a number cannot be worked out or disagrees, and how that was found."""
    return "; ".join(str(text) for text in (each["reason"], each["shown"]) if text)


def short(value: str | float | int | None) -> str:
    """Return a number to four digits, so that a table stays narrow."""
    return f"{value:.4g}" if isinstance(value, float) else plain(value)
