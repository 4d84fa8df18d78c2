"""What all figures share: the style sheet, the looks of arms and models, pages, and files of the same bytes each time.

A look differs from its neighbours in lightness, so that it survives greyscale and any colour vision, and in a second
cue besides: a marker, a line or a hatch.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from invsim.errors import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

Row: TypeAlias = dict[str, str | int | float | None]
"""One plotted datum as plain values."""

Drawn: TypeAlias = "tuple[Figure, list[Row]]"
"""A figure and what it plots."""

FORMATS = ("svg", "png")
METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {"Software": None}}

LONGEST = 48
"""Characters of a label that leave room for what it labels."""

COLUMN, PAGE = 3.4, 7.0
"""Widths of a paper's column and page, in inches."""

PUBLISHED, SPREAD = "published", "±2 sd"
MARKS = (PUBLISHED, SPREAD)
"""How the labels of marks that are no series begin; they stand last in a legend."""

INK = "#1A1A1A"
FAINT = "#8A8A8A"


@dataclass(frozen=True)
class Look:
    """How a series is told from the others: colour, and marker, line and hatch."""

    colour: str
    marker: str = "o"
    line: str = "-"
    hatch: str = ""


ARMS = {
    "A0": Look("#D4D4D4", "o", ":"),
    "A1": Look("#E69F00", "s", "--", "////"),
    "A2": Look("#B0471B", "^", "-.", "...."),
    "A2D": Look("#0A3F73", "D", "-"),
}
"""The arms from light to dark, as they know more of what drifted."""

SERIES = (Look("#111111", "o"), Look("#C2477F", "s"), Look("#5FB8AE", "^"))
"""Looks of models, or of whatever else there are up to three of."""


@contextmanager
def style() -> Iterator[None]:
    """Draw in the one style, whatever the reader's own settings are."""
    from matplotlib import style as sheets

    sheet = resources.files("invsim.report.figures").joinpath("invsim.mplstyle")
    with resources.as_file(sheet) as path, sheets.context(["default", str(path)]):
        yield


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Make a function draw in the one style."""

    @wraps(draw)
    def inside(*args: P.args, **options: P.kwargs) -> R:
        with style():
            return draw(*args, **options)

    return inside


def page(width: float, height: float, *, layout: str | None = "constrained") -> Figure:
    """Return an empty figure of a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)  # type: ignore[arg-type]


def headline(figure: Figure, text: str) -> None:
    """Title the whole figure with what it finds, in as many lines as its width asks for."""
    width = figure.get_size_inches()[0]
    figure.suptitle(textwrap.fill(text, int(width * 13.2), break_on_hyphens=False), x=0.01, ha="left", linespacing=1.2)


def legend_below(figure: Figure, axes: Sequence[Axes], *, columns: int | None = None, **options: Any) -> None:
    """Put one legend under the figure that names once everything that some panel labels, series before marks."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    arms = list(ARMS)
    names = sorted(handles, key=lambda label: (label.startswith(MARKS), arms.index(label) if label in ARMS else 0))
    figure.legend(
        [handles[name] for name in names], names, loc="outside lower left", ncols=columns or len(names),
        handlelength=2.0, columnspacing=1.4, handletextpad=0.5, borderaxespad=0.3, **options,
    )  # fmt: skip


def haloed() -> list[Any]:
    """Return the path effect that keeps a dark line visible on a dark area."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=1.9, foreground="white")]


def folded(name: str) -> str:
    """Return a model's name on two lines, broken after its first hyphen."""
    head, hyphen, rest = name.partition("-")
    return f"{head}{hyphen}\n{rest}" if rest else name


def shortened(label: str) -> str:
    """Return a label on one line, without the middle of a long one: a model may have any name."""
    text = one_line(label)
    return text if len(text) <= LONGEST else f"{text[: LONGEST * 2 // 3]}…{text[1 - LONGEST // 3 :]}"


def to_bytes(figure: Figure) -> dict[str, bytes]:
    """Return a figure's files by format, without dates, so that the same data gives the same bytes.

    The figure is laid out once and keeps that layout: the files agree, and so does a second call.
    """
    files = {}
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # shown as a box; no reason to trouble anybody
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for name in FORMATS:
            out = io.BytesIO()
            figure.savefig(out, format=name, metadata=METADATA[name])
            files[name] = out.getvalue()
    return files


def save(figure: Figure, base: Path) -> list[Path]:
    """Write a figure as SVG and PNG; see ``to_bytes``."""
    base.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in to_bytes(figure).items():
        paths.append(base.with_name(f"{base.name}.{name}"))
        paths[-1].write_bytes(content)
    return paths
