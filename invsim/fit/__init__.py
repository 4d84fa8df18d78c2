"""From tallies of trials to compliance models: rates with their error, and model files that carry it."""

from invsim.fit.counts import is_counts, tally_from_counts
from invsim.fit.estimates import Rate
from invsim.fit.fitting import Fit, Law, fit
from invsim.fit.frames import Frames, TallyLike, combined
from invsim.fit.modelfile import model_text, write_model
from invsim.fit.rows import cell_rows, parameter_rows

__all__ = [
    "Fit",
    "Frames",
    "Law",
    "Rate",
    "TallyLike",
    "cell_rows",
    "combined",
    "fit",
    "is_counts",
    "model_text",
    "parameter_rows",
    "tally_from_counts",
    "write_model",
]
