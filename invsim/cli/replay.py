"""``invsim replay``."""

from __future__ import annotations

import click

from invsim.cli.output import print_json, print_rows


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print every figure as JSON in place of the table.")
def replay(as_json: bool) -> None:
    """Replay the 114 published drifted runs from their integer outcomes, and compare what comes out with the print.

    \b
    Example:
      invsim replay
    """
    from invsim.report.replay import replay as replayed

    rows = [
        {
            "model": each.model,
            "arm": each.arm,
            "metric": each.metric,
            "replayed": each.value,
            "of": each.of,
            "published": each.published.value,
            "published_count": each.published.count,
            "where": each.published.where,
            "agrees": each.agrees,
        }
        for each in replayed()
    ]
    if as_json:
        print_json(rows)
        return
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    summary = []
    for metric in metrics:
        mine = [row for row in rows if row["metric"] == metric]
        summary.append({"metric": metric, "figures": len(mine), "agree": sum(bool(row["agrees"]) for row in mine)})
    print_rows([*summary, {"metric": "all", "figures": len(rows), "agree": sum(bool(row["agrees"]) for row in rows)}])
    for row in rows:
        if not row["agrees"]:
            click.echo(f"differs: {row}")
