"""What ``invsim paper`` makes: a registry of artifacts, each the files it writes and the function that makes them.

That function returns, beside the bytes of its files, the plain values that they show, so that the manifest can tell a
file that shows something else from one that is drawn otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from invsim.errors import InputError, UnknownNameError
from invsim.paper.calibration import Report
from invsim.paper.context import Context

T = TypeVar("T")

TABLES, FIGURES = "tables", "figures"
"""The two folders that artifacts are written to."""


Files: TypeAlias = Mapping[str, bytes]

Drawn: TypeAlias = tuple[Any, Sequence[Mapping[str, Any]]]
"""A Matplotlib figure, which only ``invsim.report`` knows, and the rows that it plots."""


@dataclass(frozen=True)
class Artifact:
    """One or more files made from one piece of data.

    Parameters
    ----------
    name : str
        What ``--only`` takes.
    folder : str
        ``TABLES`` or ``FIGURES``.
    files : tuple of str
        Names of its files.
    make : callable
        ``(context) -> (data, files)``: plain values or records of them, and the bytes of each of ``files`` by name.
    """

    name: str
    folder: str
    files: tuple[str, ...]
    make: Callable[[Context], tuple[Any, Files]]

    def made(self, context: Context) -> tuple[Any, Files]:
        """Return the data, and the bytes of every file made from it: those that were promised, all of them."""
        data, files = self.make(context)
        if set(files) != set(self.files):
            raise InputError(f"artifact {self.name!r} promises {sorted(self.files)}", value=sorted(files))
        return data, files


_artifacts: dict[str, Artifact] = {}


def register(artifact: Artifact) -> Artifact:
    """Make an artifact known; its name is taken once, and so is each of its files."""
    taken = {(each.folder, file): each.name for each in _artifacts.values() for file in each.files}
    if artifact.name in _artifacts:
        raise InputError("an artifact of that name is registered already", value=artifact.name)
    for file in artifact.files:
        if (artifact.folder, file) in taken:
            raise InputError(f"is written by artifact {taken[artifact.folder, file]!r} already", value=file)
    _artifacts[artifact.name] = artifact
    return artifact


def register_table(
    name: str,
    data: Callable[[Context], T],
    render: Callable[[T], Files],
    suffixes: Sequence[str] = ("csv", "md", "tex"),
) -> Artifact:
    """Make a table known: ``data`` works out what it shows, ``render`` returns NAME.SUFFIX for each suffix."""

    def make(context: Context) -> tuple[T, Files]:
        found = data(context)
        return found, render(found)

    return register(Artifact(name, TABLES, tuple(f"{name}.{suffix}" for suffix in suffixes), make))


def register_report(name: str, make: Callable[[], Report], records: Sequence[str]) -> Artifact:
    """Make a report known: it is written as NAME.md, and as CSV for each kind of record."""

    def made(_: Context) -> tuple[Any, Files]:
        report = make()
        return report.data, report.files()

    return register(Artifact(name, TABLES, (f"{name}.md", *(f"{each}.csv" for each in records)), made))


def register_figure(name: str, draw: Callable[[], Drawn]) -> Artifact:
    """Make a figure known: ``draw`` returns it and the rows that it plots; it is written as SVG and PNG."""
    from invsim.report.figures import FORMATS

    def make(_: Context) -> tuple[Sequence[Mapping[str, Any]], Files]:
        figure, rows = draw()
        return rows, drawn(figure, name)

    return register(Artifact(name, FIGURES, tuple(f"{name}.{suffix}" for suffix in FORMATS), make))


def drawn(figure: Any, name: str) -> dict[str, bytes]:
    """Return a figure's files, the same bytes each time."""
    import tempfile
    from pathlib import Path

    from invsim.report.figures import save

    with tempfile.TemporaryDirectory() as folder:
        return {path.name: path.read_bytes() for path in save(figure, Path(folder) / name)}


def artifacts(only: str | None = None) -> tuple[Artifact, ...]:
    """Return the artifacts in the order of the paper, or the one of that name."""
    from invsim.paper import contents  # noqa: F401 (importing it registers what there is)

    if only is None:
        return tuple(_artifacts.values())
    if only not in _artifacts:
        raise UnknownNameError("artifact", only, _artifacts, where="--only")
    return (_artifacts[only],)
