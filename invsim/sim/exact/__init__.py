"""The exact engine: the law of a stream's counts by a forward pass over the client's states, without sampling.

It shares with the other engines the facts about the server, and no code of the client: the arms are written out once
more, over small tuples. ``law`` is the public part; ``chain`` steps from episode to episode, ``kernel`` over one
episode, ``cells`` over what the draws decide, and ``arms`` says what each client does. ``many`` gives the expectations
of many models in one pass.
"""

from invsim.sim.exact.chain import StateSpaceError
from invsim.sim.exact.law import Exact, Pmf, count_names, distribution, supports
from invsim.sim.exact.many import Expected, expectations

__all__ = ["Exact", "Expected", "Pmf", "StateSpaceError", "count_names", "distribution", "expectations", "supports"]
