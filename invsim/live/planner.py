"""A real model as a compliance model: it is shown each situation as a prompt, and its answer is sent as it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from invsim.client.planners.base import Action, ComplianceModel, NoCall, Situation
from invsim.client.prompt import Consumption, Message, Turn, prompt
from invsim.live.completion import Completion
from invsim.live.journal import Where
from invsim.world.wire import Request

Ask = Callable[[Sequence[Message], Where], Completion]


class LivePlanner(ComplianceModel):
    """Plays one stream of one arm; it keeps the conversation of the episode under way.

    Parameters
    ----------
    ask : callable
        (messages, where) -> completion.
    name : str
        Of the model.
    level : Consumption
    arm : str
    stream : int
    """

    def __init__(self, ask: Ask, *, name: str, level: Consumption, arm: str, stream: int) -> None:
        self.ask, self.name, self.level, self.arm, self.stream = ask, name, level, arm, stream
        self.last: Completion | None = None
        self._turns: list[Turn] = []

    def decide(self, situation: Situation, u: float) -> Action | Request | NoCall:
        """See ``ComplianceModel.decide``; ``u`` is not used, the model draws for itself."""
        if situation.attempt == 1:
            self._turns = []
        elif self.last is not None:
            heard = self.last.fields is not None
            response = situation.response if heard else None
            self._turns.append(Turn(self.last.text, response, self.last.reason))
        messages = prompt(situation.request, situation.entries, self.level, self._turns)
        where = Where(self.arm, self.stream, situation.episode, situation.attempt)
        self.last = self.ask(messages, where)
        return NoCall(self.last.reason) if self.last.fields is None else Request(self.last.fields)
