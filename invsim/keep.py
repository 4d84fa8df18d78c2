"""The folder of a run: parts of its streams as they are finished, which a run that was stopped takes up again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from invsim.client.arms import Arm
from invsim.errors import InputError
from invsim.experiment import Observer, Recall, RunResult
from invsim.sim.plan import Plan
from invsim.sim.result import Block, read_block, write_block
from invsim.sweep.store import write_whole

if TYPE_CHECKING:
    import polars as pl

BEGUN = "begun.json"


class RunFolder:
    """Parquet of a run: ``episodes/`` and ``streams/`` in parts, then ``summary.parquet`` and ``run.json``.

    Parameters
    ----------
    folder : Path
        Empty, not there yet, or one in which the same run was begun.
    asked : mapping
        All that the results follow from, as plain data.

    Raises
    ------
    InputError
        For a folder that holds anything else.
    """

    def __init__(self, folder: Path, asked: Mapping[str, object]) -> None:
        self.folder = folder
        begun = msgspec.json.encode(asked, order="deterministic")
        key = hashlib.sha256(begun).hexdigest()
        if folder.is_dir() and any(folder.iterdir()):
            file = folder / BEGUN
            known = file.read_bytes() if file.is_file() else b""
            if hashlib.sha256(known).hexdigest() != key:
                what = "is not empty, and was not begun by this run; results go to a folder of their own"
                raise InputError(what, where="--out", value=str(folder))
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / BEGUN, begun)
        self._recalled: set[tuple[str, str, int]] = set()

    @property
    def recalled(self) -> int:
        """Parts that were there already."""
        return len(self._recalled)

    def recall(self, plan: Plan, model: str) -> Recall:
        """Return what looks for streams that were played before."""

        def look(arm: Arm, first: int, count: int) -> Block | None:
            block = read_block(plan, model=model, arm=arm.name, first=first, count=count, folder=self.folder)
            if block is not None:
                self._recalled.add((model, arm.name, first))
            return block

        return look

    def observe(self, plan: Plan, model: str) -> Observer:
        """Return what writes the parts of a model."""

        def write(arm: Arm, block: Block) -> None:
            if (model, arm.name, block.first) not in self._recalled:
                write_block(plan, block, model=model, arm=arm.name, folder=self.folder)

        return write

    def finish(self, results: Sequence[RunResult]) -> None:
        """Write the estimates."""
        unfinished = self.folder / ".summary.parquet.unfinished"
        _summary(results).write_parquet(unfinished)
        unfinished.replace(self.folder / "summary.parquet")
        found = msgspec.json.encode([each.to_dict() for each in results])
        write_whole(self.folder / "run.json", msgspec.json.format(found, indent=2))


def _summary(results: Sequence[RunResult]) -> pl.DataFrame:
    import polars as pl

    rows = [
        {"scenario": result.scenario, "model": result.model, "arm": arm.arm, "metric": name, **each.to_dict()}
        for result in results
        for arm in result.arms
        for name, each in [
            *arm.metrics.items(),
            *((f"first_try_by_class.{key}", value) for key, value in arm.first_try_by_class.items()),
        ]
    ]
    types = {"value": pl.Float64, "se": pl.Float64, "n": pl.Int64}
    return pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None)
