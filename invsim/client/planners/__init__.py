"""Compliance models: what a planner does with an injected fix and with a fresh suggestion."""

from invsim.client.planners.base import Action, ComplianceModel, Injected, NoCall, Situation
from invsim.client.planners.models import load_model, model_names
from invsim.client.planners.probabilistic import Behaviour, ProbabilisticModel, RetryLaw
from invsim.client.planners.scripted import Outcome, ScriptedModel

__all__ = [
    "Action",
    "Behaviour",
    "ComplianceModel",
    "Injected",
    "NoCall",
    "Outcome",
    "ProbabilisticModel",
    "RetryLaw",
    "ScriptedModel",
    "Situation",
    "load_model",
    "model_names",
]
