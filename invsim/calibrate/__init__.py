"""The published profiles estimated from the printed integers, checked out of sample, and what a token and a byte cost.

``calibrate`` estimates one model, ``validate`` predicts what was not fitted, ``fit_tokens`` fits the token model, and
``wire_cost`` weighs the server's responses. Every result is a frozen dataclass with ``to_dict``.
"""

from invsim.calibrate.estimate import Calibration, Estimated, Residual, calibrate, estimate
from invsim.calibrate.tokens import DetectionDelta, TokenFit, TokenResidual, detection_deltas, fit_tokens
from invsim.calibrate.validate import Accuracy, Prediction, accuracy, validate
from invsim.calibrate.wire import FieldCost, Implied, WireCost, WireRow, beside_print, implied, wire_cost

__all__ = [
    "Accuracy",
    "Calibration",
    "DetectionDelta",
    "Estimated",
    "FieldCost",
    "Implied",
    "Prediction",
    "Residual",
    "TokenFit",
    "TokenResidual",
    "WireCost",
    "WireRow",
    "accuracy",
    "beside_print",
    "calibrate",
    "detection_deltas",
    "estimate",
    "fit_tokens",
    "implied",
    "validate",
    "wire_cost",
]
