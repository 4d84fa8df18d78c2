"""``invsim paper``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from invsim.cli.output import print_json, print_listing, print_rows, telling
from invsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsim.paper.audit_report import Audited
    from invsim.paper.manifest import Checked, Written

STALE = 1
"""Exit code where a file is out of date, or a number is unexplained."""


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write to DIR/paper_tables and DIR/figures."
)
@click.option(
    "--tables", type=click.Path(path_type=Path), metavar="DIR", help="Folder of tables.  [default: paper_tables]"
)
@click.option(
    "--figures", type=click.Path(path_type=Path), metavar="DIR", help="Folder of figures.  [default: figures]"
)
@click.option("--only", metavar="NAME", help="Make one artifact: table1 to table7, audit, or a figure.")
@click.option(
    "--check", "checking", is_flag=True, help="Write nothing; say which files are out of date, and fail if any is."
)
@click.option(
    "--audit", "auditing", is_flag=True, help="Write nothing; say how every number that the paper prints fares."
)
@click.option("--seed", type=click.IntRange(min=0), help="Root of all draws.  [default: 1, or what --check finds]")
@click.option(
    "--replications", type=click.IntRange(min=6), help="Streams per cell.  [default: 20,000, or what --check finds]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of a table.")
def paper(
    out: Path | None,
    tables: Path | None,
    figures: Path | None,
    only: str | None,
    checking: bool,
    auditing: bool,
    seed: int | None,
    replications: int | None,
    as_json: bool,
) -> None:
    """Make the paper's tables and figures again, published and simulated side by side, and audit its numbers.

    Every file is entered in a manifest with hashes of its bytes and of the data it shows. Nothing is written that is
    up to date: the same seed and versions give the same bytes.

    \b
    Examples:
      invsim paper --only table1
      invsim paper --only table1 --check
      invsim paper --audit --replications 600
      invsim paper --audit --replications 600 --json
    """
    from invsim.paper.artifacts import FIGURES, TABLES, artifacts
    from invsim.paper.audit_report import Audited, audited
    from invsim.paper.context import SEED, STREAMS, Context
    from invsim.paper.manifest import check, write

    if out is not None and (tables is not None or figures is not None):
        raise InputError("names both folders, so --tables and --figures do not go with it", where="--out")
    if auditing and (checking or only is not None):
        raise InputError("stands alone; it writes nothing and compares no file", where="--audit")
    wanted = artifacts(only)
    base = out or Path()
    folders = {TABLES: tables or base / "paper_tables", FIGURES: figures or base / "figures"}
    with telling() as tell:
        if checking:
            found = check(wanted, folders, seed=seed, streams=replications, whole=only is None, tell=tell)
        else:
            context = Context(SEED if seed is None else seed, replications or STREAMS, tell)
            made = audited(context) if auditing else write(wanted, context, folders)
    if checking:
        _report_check(found, as_json=as_json)
    elif isinstance(made, Audited):
        _report_audit(made, as_json=as_json)
    else:
        _report_written(made, as_json=as_json)


def _report_written(made: Sequence[Written], *, as_json: bool) -> None:
    rows = [
        {
            "artifact": each.entry.artifact,
            "file": str(each.path),
            "sha256": each.entry.sha256,
            "state": "written" if each.changed else "up to date",
        }
        for each in made
    ]
    print_listing([row if as_json else row | {"sha256": row["sha256"][:12]} for row in rows], as_json=as_json)


def _report_check(found: Checked, *, as_json: bool) -> None:
    if as_json:
        print_json({"files": found.files, "stale": found.stale, "notes": found.notes})
    else:
        for line in (*found.stale, *(f"note: {each}" for each in found.notes)):
            click.echo(line)
        if not found.stale:
            click.echo(f"{found.files} files are up to date")
    if found.stale:
        click.get_current_context().exit(STALE)


def _report_audit(made: Audited, *, as_json: bool) -> None:
    from invsim.paper.audit_report import because, short
    from invsim.paper.claims import MEANINGS

    if as_json:
        total, exact = made.drifted
        print_json({**made.summary, "drifted_integers": {"total": total, "exact": exact}, "rows": made.records})
    else:
        print_rows([{"status": name, "numbers": made.summary[name], "": text} for name, text in MEANINGS.items()])
        total, wrong, why = (made.summary[name] for name in ("total", "contradicts", "unexplained"))
        click.echo(f"{total} numbers, of which {wrong} are contradicted and {why} unexplained:")
        for each in made.records:
            if each["status"] in {"contradicts", "unexplained"}:
                click.echo(
                    f"  {each['where']}: {each['what']}: {each['published']}, worked out {short(each['value'])}: "
                    f"{because(each) or each['status']}"
                )
    if made.summary["unexplained"]:
        click.get_current_context().exit(STALE)
