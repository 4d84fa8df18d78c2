"""Grids of scenarios: what is varied in, one table of estimates out, on any executor, and kept as it is finished."""

from invsim.sweep.cases import Case, Rates, Study
from invsim.sweep.driver import Sweep, sweep

__all__ = ["Case", "Rates", "Study", "Sweep", "sweep"]
