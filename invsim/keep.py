"""The folder of a run: parts of its streams as they are finished, which a run that was stopped takes up again."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from invsim.client.arms import Arm
from invsim.errors import InputError
from invsim.experiment import Observer, Recall, RunResult
from invsim.files import entries, write_whole
from invsim.sim.plan import Plan
from invsim.sim.result import Block, read_block, write_block

if TYPE_CHECKING:
    import polars as pl

BEGUN = "begun.json"


class RunFolder:
    """Parquet of a run: ``episodes/`` and ``streams/`` in parts, then ``summary.parquet`` and ``run.json``.

    Two runs that are the same may write into it at once: they write the same bytes.

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
        self._begun = msgspec.json.encode(asked, order="deterministic")
        file = folder / BEGUN
        if entries(folder) and (file.read_bytes() if file.is_file() else b"") != self._begun:
            what = "is not empty, and was not begun by this run; results go to a folder of their own"
            raise InputError(what, where="--out", value=str(folder))
        self._recalled: set[tuple[str, str, int]] = set()

    def _begin(self) -> None:
        """Write down whose folder it is, once there is something to write; a run that is refused leaves it free."""
        if not (self.folder / BEGUN).is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / BEGUN, self._begun)

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
                self._begin()
                write_block(plan, block, model=model, arm=arm.name, folder=self.folder)

        return write

    def finish(self, results: Sequence[RunResult]) -> None:
        """Write the estimates."""
        self._begin()
        file = io.BytesIO()
        _summary(results).write_parquet(file)
        write_whole(self.folder / "summary.parquet", file.getvalue())
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
