"""What ``invsim paper`` makes: a registry of artifacts, each the files it writes and the functions that make them.

An artifact is made in two steps, so that what a file shows can be told from how it is drawn: ``data`` works out plain
values, ``render`` turns them into bytes. The manifest keeps a hash of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from invsim.errors import InputError, UnknownNameError
from invsim.paper.context import Context

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES, FIGURES = "tables", "figures"
"""The two folders that artifacts are written to."""


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
    data : callable
        ``(context) -> plain values``: what JSON can hold, or dataclasses and Structs of it.
    render : callable
        ``(data) -> mapping of file name to bytes``, one for each of ``files``.
    """

    name: str
    folder: str
    files: tuple[str, ...]
    data: Callable[[Context], Any]
    render: Callable[[Any], Mapping[str, bytes]]

    def make(self, context: Context) -> tuple[Any, Mapping[str, bytes]]:
        """Return the data, and the bytes of every file made from it."""
        data = self.data(context)
        made = self.render(data)
        if set(made) != set(self.files):
            raise InputError(f"artifact {self.name!r} promises {sorted(self.files)}", value=sorted(made))
        return data, made


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


def register_figure(name: str, data: Callable[[Context], Any], draw: Callable[[Any], Figure]) -> Artifact:
    """Make a figure known: ``data`` works out what it shows, ``draw`` draws it; written as SVG and PNG."""
    from invsim.report.figures import FORMATS

    files = tuple(f"{name}.{suffix}" for suffix in FORMATS)
    return register(Artifact(name, FIGURES, files, data, lambda found: drawn(draw(found), name)))


def drawn(figure: Figure, name: str) -> dict[str, bytes]:
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
