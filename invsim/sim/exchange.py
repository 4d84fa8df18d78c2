"""What a watcher of the engine is told of every attempt, as the client saw it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from invsim.client.memory import Entry
from invsim.client.planners.base import Action, Injected, NoCall
from invsim.sim.plan import Task
from invsim.world.wire import Request, Response


class Exchange(NamedTuple):
    """One attempt and its answer.

    Parameters
    ----------
    stream, episode, attempt, tick : int
        ``attempt`` from 1.
    task : Task
    injected : Injected
    entries : tuple of Entry
        What memory held for the episode's key before its first attempt, oldest first.
    valid : tuple of bool
        Of each entry, whether it was right when it was injected.
    action : Action, Request or NoCall
        What the planner decided.
    request : Request or None
        What was sent; None where nothing was.
    response : Response
    last : bool
        Whether the episode ends here.
    """

    stream: int
    episode: int
    attempt: int
    tick: int
    task: Task
    injected: Injected
    entries: tuple[Entry, ...]
    valid: tuple[bool, ...]
    action: Action | Request | NoCall
    request: Request | None
    response: Response
    last: bool


Watcher: TypeAlias = Callable[[Exchange], None]
