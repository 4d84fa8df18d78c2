"""invsim: discrete-event simulation and analysis of invalidation contracts.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invsim.client.arms import Arm, arm_names, get_arm, register_arm
    from invsim.client.planners import Action, ComplianceModel, Injected, NoCall, Situation, load_model, model_names
    from invsim.experiment import RunResult, run
    from invsim.sim.engine import rerun, simulate_block
    from invsim.sim.plan import Plan, compile_plan
    from invsim.sim.scenario import load_scenario
    from invsim.world.domain import Domain, load_domain, register_domain

__version__ = "0.1.0"

_HOME = {
    "Action": "invsim.client.planners",
    "Arm": "invsim.client.arms",
    "ComplianceModel": "invsim.client.planners",
    "Domain": "invsim.world.domain",
    "Injected": "invsim.client.planners",
    "NoCall": "invsim.client.planners",
    "Plan": "invsim.sim.plan",
    "RunResult": "invsim.experiment",
    "Situation": "invsim.client.planners",
    "arm_names": "invsim.client.arms",
    "compile_plan": "invsim.sim.plan",
    "get_arm": "invsim.client.arms",
    "load_domain": "invsim.world.domain",
    "load_model": "invsim.client.planners",
    "load_scenario": "invsim.sim.scenario",
    "model_names": "invsim.client.planners",
    "register_arm": "invsim.client.arms",
    "register_domain": "invsim.world.domain",
    "rerun": "invsim.sim.engine",
    "run": "invsim.experiment",
    "simulate_block": "invsim.sim.engine",
}

__all__ = [
    "Action",
    "Arm",
    "ComplianceModel",
    "Domain",
    "Injected",
    "NoCall",
    "Plan",
    "RunResult",
    "Situation",
    "arm_names",
    "compile_plan",
    "get_arm",
    "load_domain",
    "load_model",
    "load_scenario",
    "model_names",
    "register_arm",
    "register_domain",
    "rerun",
    "run",
    "simulate_block",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'invsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
