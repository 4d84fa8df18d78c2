"""The NumPy engine: whole arrays of streams at a time, on a plan that ``invsim.sim.facts`` can tabulate.

It shares with the SimPy engine the facts about the server and the keyed draws, and no code of the client: the arms and
the model's decisions are written out a second time, as array operations. Stream by stream both give the same numbers.
"""

from invsim.sim.vector.engine import VectorEngine, simulate_block, supports
from invsim.sim.vector.outcomes import Outcomes

__all__ = ["Outcomes", "VectorEngine", "simulate_block", "supports"]
