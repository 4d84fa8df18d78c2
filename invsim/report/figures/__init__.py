"""Figures: data in, a Matplotlib figure out, and beside each the rows it plots. Nothing here simulates."""

from invsim.report.figures.grid import grid_figure, panels
from invsim.report.figures.style import FORMATS, Drawn, Row, save, to_bytes

__all__ = ["FORMATS", "Drawn", "Row", "grid_figure", "panels", "save", "to_bytes"]
