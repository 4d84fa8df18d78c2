"""Every notebook runs from top to bottom, is stored without outputs, and ends with a figure and what it shows."""

import warnings
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
LONGEST_CELL = 120
"""Seconds; a cell that takes longer is no part of a thin notebook."""


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def test_the_notebooks_are_numbered_without_a_gap() -> None:
    assert [path.name[0] for path in NOTEBOOKS] == [str(at + 1) for at in range(len(NOTEBOOKS))]
    assert len(NOTEBOOKS) == 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert cells
    assert not any(cell.outputs or cell.execution_count for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_ends_with_a_figure_and_a_finding(path: Path, tmp_path: Path) -> None:
    notebook = read(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="(zmq|jupyter_client|nbclient|asyncio)")
        client = NotebookClient(
            notebook, timeout=LONGEST_CELL, resources={"metadata": {"path": str(tmp_path)}}, record_timing=False
        )
        client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    last = outputs[-1]
    assert last.output_type == "stream"
    assert last.text.startswith("Finding: ")
    assert last.text.count(".") >= 1
    assert not [output for output in outputs if output.get("name") == "stderr"]
