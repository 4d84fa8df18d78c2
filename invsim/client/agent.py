"""The driver around an arm: it holds the store, asks the server for what the arm wants, and passes messages on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from invsim.client.arms import Arm, Message, ignore
from invsim.client.memory import Entry, Memory, Slot, Step
from invsim.world.server import ReloadReport, RuleChange
from invsim.world.wire import Request, Response, Suggestion


class Upstream(Protocol):
    """What a client can ask beyond business requests."""

    @property
    def rule_log(self) -> Sequence[RuleChange]:
        """Rule changes so far, oldest first."""

    def last_reload(self, table: str) -> ReloadReport | None:
        """Return what the last reload of a table reported."""


def carries(request: Request, suggestion: Suggestion) -> bool:
    """Return whether a request has every parameter that a suggestion asks for."""
    return suggestion.parameters.items() <= request.fields.items()


class Agent:
    """A client between episodes and within one: memory plus the arm's decisions.

    Parameters
    ----------
    arm : Arm
    upstream : Upstream
        The server, for the diffs and declarations that the arm wants.
    """

    __slots__ = ("_log_read", "arm", "memory", "upstream")

    def __init__(self, arm: Arm, upstream: Upstream) -> None:
        self.arm = arm
        self.upstream = upstream
        self.memory = Memory()
        self._log_read = len(upstream.rule_log) if "rules" in arm.wants else 0

    def recall(self, slot: Slot) -> tuple[Entry, ...]:
        """Return what is injected before the first attempt."""
        return self.memory.slots.get(slot, ())

    def receive(self, response: Response) -> Step | None:
        """Observe a response, success or error: evict and restamp. None when nothing moved."""
        arm, memory = self.arm, self.memory
        quiet = response.table_versions is memory.versions and response.rules_version == memory.rules_version
        if quiet and (response.ok or arm.on_rules is ignore) and not self._has_news():
            return None
        message = self._message(response)
        step = arm.observe(memory, message)
        self.memory = step.memory
        return step if step.evicted or step.restamps or step.alerts else None

    def commit(self, slot: Slot, suggestions: Sequence[Suggestion], request: Request) -> Entry | None:
        """Store what an episode was told, now that ``request`` has completed it, and return the entry.

        Only a suggestion of the slot's own family is kept: the episode's key names a row of that family's table, and
        says nothing of the row another suggestion came from. And only one that the request carried: that it passed
        shows that the fix holds now, and not only when it was told. The latest of several counts.
        """
        for suggestion in reversed(suggestions):
            if suggestion.type == slot.family and carries(request, suggestion):
                self.memory, stored = self.arm.commit(self.memory, slot, suggestion)
                return stored
        return None

    def _has_news(self) -> bool:
        return "rules" in self.arm.wants and len(self.upstream.rule_log) > self._log_read

    def _message(self, response: Response) -> Message:
        arm, memory = self.arm, self.memory
        stale: tuple[str, ...] = ()
        reloads: dict[str, ReloadReport] = {}
        if response.table_versions is not None and response.table_versions is not memory.versions:
            stale = tuple(
                name
                for name, version in response.table_versions.items()
                if memory.versions.get(name, version) != version
            )
            if "reloads" in arm.wants and stale:
                fetched = {name: self.upstream.last_reload(name) for name in stale}
                reloads = {name: report for name, report in fetched.items() if report is not None}
        changes: tuple[RuleChange, ...] = ()
        if "rules" in arm.wants:
            changes = tuple(self.upstream.rule_log[self._log_read :])
            self._log_read += len(changes)
        return Message(response, stale, reloads, changes)
