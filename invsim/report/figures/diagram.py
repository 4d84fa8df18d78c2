"""Diagrams as data: boxes, arrows and labels at places in inches, and the one function that draws them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from invsim.report.figures.style import INK, Row, headline, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MONO = "DejaVu Sans Mono"
LINE = 0.105
"""Height of a line of small text, in inches."""

FILLS = {
    "": "#FFFFFF",
    "client": "#EAF2F9",
    "server": "#FBF3E2",
    "row": "#FFFFFF",
    "changed": "#B0471B",
    "downstream": "#F0C27B",
}
LIGHT = ("changed",)
"""Kinds of box whose fill is dark, so that their text is white."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A box with a title and lines of code names below it.

    Parameters
    ----------
    name : str
        Tells boxes apart.
    x, y, width, height : float
        Lower left corner and size, inches.
    title : str
    lines : tuple of str
    kind : str
        Key of ``FILLS``.
    """

    name: str
    x: float
    y: float
    width: float
    height: float
    title: str = ""
    lines: tuple[str, ...] = ()
    kind: str = ""

    @property
    def left(self) -> Point:
        """Middle of the left side."""
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> Point:
        """Middle of the right side."""
        return self.x + self.width, self.y + self.height / 2


@dataclass(frozen=True)
class Arrow:
    """A polyline from box to box; ``start`` and ``end`` name them, ``points`` say where it runs."""

    start: str
    end: str
    points: tuple[Point, ...]
    relation: str = ""
    head: bool = True
    dashed: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Label:
    """Text at a place, anchored by ``align`` ("left", "center", "right") and at its vertical middle."""

    x: float
    y: float
    text: str
    align: str = "center"
    code: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Diagram:
    """What is drawn, back to front: frames (as boxes), arrows, boxes, labels."""

    width: float
    height: float
    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...] = ()
    labels: tuple[Label, ...] = ()
    frames: tuple[Box, ...] = field(default=())


def diagram_rows(diagram: Diagram) -> list[Row]:
    """Return what a diagram says, without where it says it."""
    rows: list[Row] = []
    for box in diagram.boxes:
        rows.append({"kind": "box", "name": box.name, "to": None, "text": "; ".join((box.title, *box.lines))})
    for arrow in diagram.arrows:
        rows.append({"kind": "arrow", "name": arrow.start, "to": arrow.end, "text": arrow.relation})
    for label in diagram.labels:
        rows.append({"kind": "label", "name": None, "to": None, "text": label.text})
    return rows


def draw(diagram: Diagram, *, headroom: float = 0.3) -> Figure:
    """Draw a diagram, with ``headroom`` inches for its title."""
    height = diagram.height + headroom
    figure = page(diagram.width, height, layout=None)
    axis = figure.add_axes((0.0, 0.0, 1.0, diagram.height / height))
    axis.set_xlim(0.0, diagram.width)
    axis.set_ylim(0.0, diagram.height)
    axis.set_axis_off()
    for frame in diagram.frames:
        _frame(axis, frame)
    for arrow in diagram.arrows:
        _arrow(axis, arrow)
    for box in diagram.boxes:
        _box(axis, box)
    for label in diagram.labels:
        axis.text(
            label.x, label.y, label.text, ha=label.align, va="center", fontsize=5.6 if label.code else 6.2, color=INK,
            fontfamily=MONO if label.code else None, fontweight="bold" if label.strong else "normal",
            linespacing=1.35, zorder=5,
        )  # fmt: skip
    headline(figure, diagram.title)
    return figure


def _rectangle(axis: Axes, box: Box, *, rounding: float, **look: object) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = f"round,pad=0,rounding_size={rounding}"
    axis.add_patch(FancyBboxPatch((box.x, box.y), box.width, box.height, boxstyle=style, **look))  # type: ignore[arg-type]


def _frame(axis: Axes, box: Box) -> None:
    _rectangle(axis, box, rounding=0.06, facecolor=FILLS[box.kind], edgecolor="#B5B5B5", linewidth=0.6, zorder=0)
    axis.text(
        box.x + 0.08, box.y + box.height - 0.1, box.title, ha="left", va="center", fontsize=7, fontweight="bold",
        color=INK,
    )  # fmt: skip


def _box(axis: Axes, box: Box) -> None:
    flat = box.kind in ("row", *LIGHT, "downstream")
    _rectangle(
        axis, box, rounding=0.0 if flat else 0.04, facecolor=FILLS[box.kind], edgecolor="#BBBBBB" if flat else INK,
        linewidth=0.35 if flat else 0.7, zorder=3,
    )  # fmt: skip
    ink = "white" if box.kind in LIGHT else INK
    texts = [(box.title, True)] * bool(box.title) + [(line, False) for line in box.lines]
    top = box.y + box.height / 2 + LINE * (len(texts) - 1) / 2
    for at, (text, bold) in enumerate(texts):
        axis.text(
            box.x + box.width / 2, top - at * LINE, text, ha="center", va="center", fontsize=6.4 if bold else 5.3,
            fontweight="bold" if bold else "normal", fontfamily=None if bold else MONO, color=ink, zorder=4,
        )  # fmt: skip


def _arrow(axis: Axes, arrow: Arrow) -> None:
    colour = INK if arrow.head or arrow.strong else "#8A8A8A"
    xs, ys = [x for x, _ in arrow.points], [y for _, y in arrow.points]
    line = (0, (3, 1.5)) if arrow.dashed else "-"
    width = 1.5 if arrow.strong else 0.9 if arrow.head else 0.5
    if not arrow.head:
        axis.plot(xs, ys, color=colour, linewidth=width, linestyle=line, marker="", zorder=2)
        return
    axis.plot(xs[:-1], ys[:-1], color=colour, linewidth=width, linestyle=line, marker="", zorder=2)
    axis.annotate(
        "", arrow.points[-1], arrow.points[-2], zorder=2,
        arrowprops={
            "arrowstyle": "-|>,head_length=0.35,head_width=0.18", "color": colour, "linewidth": width,
            "linestyle": line, "shrinkA": 0, "shrinkB": 0,
        },
    )  # fmt: skip


def path(*points: Point) -> tuple[Point, ...]:
    """Return the points of a polyline."""
    return points


def wrapped(names: Sequence[str], width: int) -> list[str]:
    """Return names in lines of at most ``width`` characters, with commas between."""
    lines = [""]
    for name in names:
        joined = f"{lines[-1]}, {name}" if lines[-1] else name
        if len(joined) > width:
            lines.append(name)
        else:
            lines[-1] = joined
    return lines


def column(boxes: Sequence[Box]) -> tuple[Arrow, ...]:
    """Return arrows straight down from each box to the next."""
    return tuple(
        Arrow(
            upper.name,
            lower.name,
            path((upper.x + upper.width / 2, upper.y), (lower.x + lower.width / 2, lower.y + lower.height)),
        )
        for upper, lower in itertools.pairwise(boxes)
    )
