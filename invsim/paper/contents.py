"""The artifacts of the paper, in its order. One line adds one."""

from __future__ import annotations

from functools import partial

from invsim.paper import audit_report, calibration, render, sheets
from invsim.paper.artifacts import register_figure, register_report, register_table
from invsim.paper.figure_data import FIGURES

register_table("table1", sheets.table_1, render.written)
register_table("table2", sheets.table_2, render.written)
for layout in sheets.LAYOUTS:
    register_table(layout.name, partial(sheets.filled, layout), render.written)
register_table("audit", audit_report.audited, audit_report.written, ("csv", "md"))
for name, (make, records) in calibration.REPORTS.items():
    register_report(name, make, records)
for name, draw in FIGURES.items():
    register_figure(name, draw)
