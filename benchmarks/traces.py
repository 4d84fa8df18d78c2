"""Tallying a trace beside a bare scan of the same file: rows a second, and peak memory.

    python benchmarks/traces.py 10000000

generates that many attempts as native Parquet, scans every column of them once with polars, tallies them, in turn for
some rounds, and last once more each in a process of its own for its peak memory.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec
import numpy as np
import polars as pl
from peak import peak_of

from invsim.traces.columns import dtypes
from invsim.traces.parquet import BATCH
from invsim.traces.read import read_tally
from invsim.traces.schema import Fix, Op

ROWS = 1_000_000
ROUNDS = 3
PART = 500_000
GROUP = 100_000

MODELS = tuple(f"model-{at}" for at in range(7))
TASKS = 60
AMOUNTS = 20
CODES = 12
MOST = 5


def main() -> None:
    """Measure as many rows as the first argument says; with "scan" or "tally" and a file, do just that."""
    if len(sys.argv) > 2:
        {"scan": scan, "tally": read}[sys.argv[1]](Path(sys.argv[2]))
        return
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)


def measure(rows: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return rates, peaks in MiB, and the ratio of the tally's rate to the bare scan's."""
    with tempfile.TemporaryDirectory(prefix="invsim-bench-") as folder:
        path = Path(folder) / "trace.parquet"
        generate(path, rows)
        taken: dict[str, list[float]] = {"scan": [], "tally": []}
        for _ in range(ROUNDS):
            for name, work in (("scan", scan), ("tally", read)):
                started = perf_counter()
                work(path)
                taken[name].append(perf_counter() - started)
        rates = {name: rows / median(times) for name, times in taken.items()}
        peaks = {name: peak_of([sys.executable, __file__, name, str(path)]) for name in taken}
        size = path.stat().st_size / 2**20
    print(
        f"\nA trace of {rows:,} attempts, native Parquet of {size:,.0f} MiB (medians of {ROUNDS} interleaved rounds):"
    )
    for name, what in (("scan", "polars, every column materialised once"), ("tally", "read_tally")):
        print(f"  {what:<42} {rates[name]:>12,.0f} rows/s   peak {peaks[name]:>7,.0f} MiB")
    ratio = rates["tally"] / rates["scan"]
    print(f"  tally / scan: {ratio:.2f}")
    figures = {f"trace_{name}_rows_per_s": rate for name, rate in rates.items()}
    figures |= {f"trace_{name}_peak_mib": peaks[name] for name in taken}
    return figures, {"trace_tally_over_scan": ratio}


def scan(path: Path) -> None:
    """Materialise every column of a file once, batch by batch."""
    rows = pl.scan_parquet(path)
    height = rows.select(pl.len()).collect().item()
    assert sum(rows.slice(at, BATCH).collect(engine="streaming").height for at in range(0, height, BATCH)) == height


def read(path: Path) -> None:
    """Tally a file."""
    counted, (report,) = read_tally([path])
    assert not report.faults, report.warnings
    assert counted.episodes["n"].sum() == report.episodes


# The trace ----------------------------------------------------------------------------------------------------------


def generate(path: Path, rows: int, seed: int = 1) -> None:
    """Write a trace of episodes of one to five attempts; errors carry a hint, and half of the episodes a fix."""
    parts = path.with_suffix(".parts")
    parts.mkdir()
    for first in range(0, rows, PART):
        part = _part(np.random.default_rng([seed, first]), first, min(PART, rows - first))
        part.write_parquet(parts / f"{first:012d}.parquet", statistics=False)
    pl.scan_parquet(parts / "*.parquet").sink_parquet(path, row_group_size=GROUP, statistics=False)
    for file in parts.iterdir():
        file.unlink()
    parts.rmdir()


def _texts(values: Sequence[object]) -> pl.Series:
    return pl.Series([msgspec.json.encode(value).decode() for value in values])


def _part(rng: np.random.Generator, first: int, rows: int) -> pl.DataFrame:
    """Return whole episodes of ``rows`` attempts in all."""
    attempts = np.minimum(rng.geometric(0.45, rows), MOST)
    episodes = int(np.searchsorted(np.cumsum(attempts), rows)) + 1
    attempts = attempts[:episodes]
    attempts[-1] -= attempts.sum() - rows
    of = np.repeat(np.arange(episodes), attempts)
    step = np.arange(rows) - np.repeat(np.cumsum(attempts) - attempts, attempts) + 1
    last = step == attempts[of]
    task = rng.integers(0, TASKS, episodes)[of]
    code = rng.integers(0, CODES, episodes)[of]
    amount = rng.integers(0, AMOUNTS, episodes)[of]
    wrong = np.where(rng.random(rows) < 0.5, CODES, (code + 1) % CODES)
    ok = last & (rng.random(rows) < 0.95)
    with_fix = rng.random(episodes) < 0.5
    plain = [
        {"plan": f"plan_{at}", "amount": 10.0 + much, **({} if which == CODES else {"promo_code": f"CODE{which}"})}
        for at in range(TASKS) for much in range(AMOUNTS) for which in range(CODES + 1)
    ]  # fmt: skip
    request = _texts(plain).gather((task * AMOUNTS + amount) * (CODES + 1) + np.where(ok, code, wrong))
    ops = [(Op("add", "/promo_code", f"CODE{which}"),) for which in range(CODES)]
    answers = [{"success": False, "error": f"plan needs its promotional code CODE{which}", "recovery_feedback": {
        "suggestions": [{"type": "ADD_ACTIVE_PROMO_CODE", "parameters": {"promo_code": f"CODE{which}"},
        "cache_hint": "cacheable", "table": "active_csm_codes"}]}, "table_versions": {"active_csm_codes": f"v{much}"},
        } for which in range(CODES) for much in range(AMOUNTS)]  # fmt: skip
    right = {"success": True, "table_versions": {"active_csm_codes": "v1"}}
    response = _texts([*answers, right]).gather(np.where(ok, len(answers), code * AMOUNTS + amount))
    fixes = _texts(
        [(Fix(f"fix{which}", hint, valid=valid),) for valid in (True, False) for which, hint in enumerate(ops)]
    )
    held = code + CODES * (rng.random(episodes) < 0.3)[of]
    name = pl.Series(of + first).cast(pl.String)
    start = 1_760_000_000_000_000_000 + (np.arange(rows) + first) * 1_000_000_000
    columns = {
        "episode_id": "payments/A2D/" + name,
        "task_id": pl.Series([f"governed/plan_{at}" for at in range(TASKS)]).gather(task),
        "model": pl.Series(MODELS).gather(rng.integers(0, len(MODELS), episodes)[of]),
        "arm": pl.repeat("A2D", rows, eager=True),
        "constraint": pl.repeat("governed", rows, eager=True),
        "trial": rng.integers(0, 9, episodes)[of],
        "step": step,
        "seq": np.zeros(rows, np.int64),
        "order_source": pl.repeat("index", rows, eager=True),
        "call_id": "call_" + pl.Series(np.arange(rows) + first).cast(pl.String),
        "tool": pl.repeat("payments", rows, eager=True),
        "request": request,
        "parse_status": pl.repeat("ok", rows, eager=True),
        "outcome": pl.select(pl.when(pl.Series(ok)).then(pl.lit("ok")).otherwise(pl.lit("error"))).to_series(),
        "error_source": pl.select(pl.when(pl.Series(ok)).then(pl.lit("none")).otherwise(pl.lit("status"))).to_series(),
        "status_code": np.where(ok, 200, 422),
        "response": response,
        "finish_reason": pl.repeat("tool_calls", rows, eager=True),
        "hint": pl.select(pl.when(pl.Series(~ok)).then(_texts([*ops]).gather(code))).to_series(),
        "injected": pl.select(pl.when(pl.Series((step == 1) & with_fix[of])).then(fixes.gather(held))).to_series(),
        "input_tokens": rng.integers(900, 1500, rows),
        "output_tokens": rng.integers(20, 90, rows),
        "t_start": start,
        "t_end": start + rng.integers(1, 900_000_000, rows),
        "transport_retries": np.zeros(rows, np.int64),
        "source_format": pl.repeat("invsim", rows, eager=True),
        "warnings": pl.select(pl.when(pl.Series(last & ~ok)).then(pl.lit('["exhausted"]'))).to_series(),
    }  # fmt: skip
    return pl.DataFrame([pl.Series(name, columns.get(name, [None] * rows), kind) for name, kind in dtypes().items()])


if __name__ == "__main__":
    main()
