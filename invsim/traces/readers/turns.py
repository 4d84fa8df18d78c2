"""An episode put together from what a log tells in order: the model's turns, the calls in them, their answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from invsim.traces.reader import Faults
from invsim.traces.readers.arguments import Arguments, shallow, strict_json
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.hints import Hint, find_hint
from invsim.traces.readers.outcomes import TRANSPORT, Verdict, as_status, judge, status_of
from invsim.traces.readers.times import Moment
from invsim.traces.readers.usage import UNKNOWN, Usage
from invsim.traces.schema import Call, OrderSource, Outcome

LOG_ENDS = "log-ends"
"""Warning on the last call of an episode whose log ends before the episode does: torn, cut, stopped by a limit."""

REFUSED_NEXT = "refused-next"
"""Warning on the last call before a turn that the model, or a filter, refused to give."""

BEGINS_LATE = "begins-late"
"""Warning on the first call of an episode whose model knew of calls that are not in it: its first try came before."""

NAIVE_TIME = "naive-time"
REFUSALS = frozenset({"refusal", "content_filter"})
CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "MAX_TOKENS"})


@dataclass(frozen=True)
class Identity:
    """What all rows of an episode share."""

    source_format: str
    source_file: str
    episode_id: str
    task_id: str = ""
    trial: int | None = None
    model: str | None = None
    model_requested: str | None = None
    model_source: str | None = None
    order_source: OrderSource = "index"


@dataclass
class Turn:
    """One answer of the model: a step. What a log learns late, as when it streams, may be set late."""

    step: int
    model: str | None = None
    model_requested: str | None = None
    model_source: str | None = None
    finish_reason: str | None = None
    usage: Usage = UNKNOWN
    usage_id: str | None = None
    at: Moment | None = None
    size: int = 0


class Answer(NamedTuple):
    """What a tool answered; ``outcome`` where the log states more than a flag."""

    content: Any
    flag: bool | None = None
    status: int | None = None
    outcome: Outcome | None = None
    at: Moment | None = None
    transport_retries: int = 0


@dataclass
class Pending:
    """A call on its way to a row."""

    turn: Turn
    seq: int
    place: str
    tool: str
    arguments: Arguments
    call_id: str | None
    at: Moment | None
    answer: Answer | None = None
    transport_retries: int = 0
    within: bool = False
    """Whether the answer came within the turn, so that calls after this one may have been made knowing it."""
    warnings: dict[str, None] = field(default_factory=dict)


class EpisodeNames:
    """Keeps the episodes of a file apart: of two records of one name the same one counts once, another is renamed."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._seen: dict[str, set[bytes]] = {}

    def admit(self, name: str, record: Fields) -> str | None:
        """Return the name under which a record counts, or None, noted, for one that was there before."""
        seen = self._seen.setdefault(name, set())
        try:
            content = blake2b(msgspec.json.encode(record.data), digest_size=16).digest()
        except RecursionError:
            content = record.place.encode()
        if content in seen:
            self._faults.add(record.place, "duplicate-record", f"the same record of {name!r} came before", lost=False)
            return None
        seen.add(content)
        if len(seen) == 1:
            return name
        self._faults.add(record.place, "duplicate-id", f"another record of {name!r} came before", lost=False)
        return f"{name}#{len(seen)}"


class Episode:
    """Takes turns, calls and answers in order and yields the rows at the end; ``first`` is the first turn's step."""

    def __init__(self, identity: Identity, faults: Faults, first: int = 0) -> None:
        self.identity, self.faults = identity, faults
        self._drafts: list[Pending] = []
        self._by_id: dict[str, list[Pending]] = {}
        self._turns: dict[str, Turn] = {}
        self._turn: Turn | None = None
        self._steps = first

    def turn(self, key: str | None = None) -> Turn:
        """Begin a turn, or go on with the one of that key; calls that follow belong to it."""
        if key is not None and key in self._turns:
            self._turn = self._turns[key]
        else:
            self._turn = Turn(self._steps)
            self._steps += 1
            if key is not None:
                self._turns[key] = self._turn
        return self._turn

    def refuse(self) -> None:
        """Note that the turn just begun is a refusal."""
        if self._drafts:
            self._drafts[-1].warnings[REFUSED_NEXT] = None

    def rename(self, name: str) -> None:
        """Call the episode what its log turns out to call it."""
        self.identity = replace(self.identity, episode_id=name)

    def flatten(self) -> None:
        """Note that who retried what is not known."""
        self.identity = replace(self.identity, order_source="flattened")

    def call(
        self, place: str, tool: str | None, arguments: Arguments, call_id: str | None, at: Moment | None = None
    ) -> Pending | None:
        """Add a call to the turn and return it; one without a tool's name is no row, and None."""
        turn = self._turn or self.turn()
        if not tool:
            self.faults.add(place, "no-tool", "a call that names no tool")
            return None
        same = self._by_id.setdefault(call_id, []) if call_id else []
        if any(each.turn is turn for each in same[-1:]):
            self.faults.add(place, "duplicate-id", f"call id {call_id!r} twice in one turn", lost=False)
        draft = Pending(turn, turn.size, place, tool, arguments, call_id, at)
        draft.warnings.update(dict.fromkeys(arguments.warnings))
        turn.size += 1
        self._drafts.append(draft)
        same.append(draft)
        return draft

    def asked(self, call_id: str | None) -> Sequence[Pending]:
        """Return the calls of an id, in order."""
        return self._by_id.get(call_id, ()) if call_id is not None else ()

    def awaits(self, call_id: str | None) -> bool:
        """Return whether a call of that id is unanswered."""
        return self._asked(call_id, None) is not None

    def answer(self, place: str, call_id: str | None, answer: Answer, tool: str | None = None) -> None:
        """Give a call its answer: the latest unanswered one of that id, or, without an id, the oldest of the turn."""
        answer = _readable(answer)
        draft = self._asked(call_id, tool)
        if draft is not None:
            if call_id is None:
                draft.warnings["matched-by-order"] = None
            draft.answer = answer
        elif (again := self._latest(call_id)) is not None:
            self._answer_again(place, again, answer)
        elif tool:
            self._answer_alone(place, call_id, answer, tool)
        else:
            self.faults.add(place, "orphan-answer", f"no call of id {call_id!r} came before")

    def give(self, call: Pending | None, answer: Answer) -> None:
        """Give an answer to a call that is known otherwise than by its id."""
        if call is not None:
            call.answer = _readable(answer)

    def stop(self, answer: Answer) -> None:
        """Give an answer to all calls of the turn that have none."""
        for each in self._latest_calls():
            if each.answer is None:
                each.answer = _readable(answer)

    def calls(self, *, complete: bool = True, late: bool = False) -> Iterator[Call]:
        """Yield the rows.

        Parameters
        ----------
        complete : bool
            Whether the log holds the episode to its end. If not, or if it ends on an unanswered or failed call, the
            last row carries the warning "log-ends".
        late : bool
            Whether the episode began before. The first row then carries the warning "begins-late".
        """
        drafts = sorted(self._drafts, key=lambda each: (each.turn.step, each.seq))
        calls = [self._row(each) for each in drafts]
        if any(
            draft.within and call.outcome != "ok" and after.step == call.step
            for draft, (call, after) in zip(drafts, pairwise(calls), strict=False)
        ):  # what follows may retry it, or not: both were asked for in one turn
            calls = [msgspec.structs.replace(each, order_source="flattened") for each in calls]
        ends_open = any(each.outcome != "ok" for each in calls if each.step == self._steps - 1)
        if calls and (ends_open or not complete):
            calls[-1] = msgspec.structs.replace(calls[-1], warnings=(*calls[-1].warnings, LOG_ENDS))
        if calls and late:
            calls[0] = msgspec.structs.replace(calls[0], warnings=(BEGINS_LATE, *calls[0].warnings))
        yield from calls

    def _asked(self, call_id: str | None, tool: str | None) -> Pending | None:
        if call_id is not None:
            # Two calls of one id in one turn are answered in order; an id used again means its latest use.
            found: Pending | None = None
            for each in reversed(self._by_id.get(call_id, ())):
                if found is not None and each.turn is not found.turn:
                    break
                found = each if each.answer is None else found
            return found
        open_ones = [each for each in self._latest_calls() if each.answer is None]
        return next((each for each in open_ones if tool is None or each.tool == tool), None)

    def _latest_calls(self) -> list[Pending]:
        return self._drafts[len(self._drafts) - self._turn.size :] if self._turn else []

    def _latest(self, call_id: str | None) -> Pending | None:
        return self._by_id[call_id][-1] if call_id in self._by_id and call_id is not None else None

    def _answer_again(self, place: str, draft: Pending, answer: Answer) -> None:
        if (
            draft.answer is not None and _status(draft.answer) in TRANSPORT
        ):  # sent again by the client: the model saw the last answer alone
            draft.transport_retries += 1
            draft.answer = answer
        else:
            self.faults.add(place, "duplicate-answer", f"call {draft.call_id!r} was answered before", lost=False)

    def _answer_alone(self, place: str, call_id: str | None, answer: Answer, tool: str) -> None:
        """Keep an answer whose call the log lacks: a row of its own, of unknown request and order."""
        self.faults.add(place, "orphan-answer", f"the call that {tool!r} answers is not in the log", lost=False)
        self.turn()
        call = self.call(place, tool, Arguments(None, None, "invalid", ("orphan-answer",)), call_id)
        self.give(call, answer)

    def _row(self, draft: Pending) -> Call:
        turn, identity, answer = draft.turn, self.identity, draft.answer
        response, hint, verdict, status = None, Hint(), Verdict("missing"), None
        if answer is not None:
            status = _status(answer)
            verdict = judge(answer.content, flag=answer.flag, status=status)
            if answer.outcome is not None:
                verdict = Verdict(answer.outcome, "none" if answer.outcome == "ok" else "flag")
            response = self._response(draft, answer)
            if verdict.outcome not in ("ok", "denied"):
                hint = find_hint(response, draft.arguments.request)
        started = draft.at or turn.at
        ended = answer.at if answer else None
        warnings = dict.fromkeys((*draft.warnings, *hint.warnings))
        if any(each is not None and each.naive for each in (started, ended)):
            warnings[NAIVE_TIME] = None
        return Call(
            episode_id=identity.episode_id,
            task_id=identity.task_id,
            trial=identity.trial,
            model=turn.model or identity.model,
            model_requested=turn.model_requested or identity.model_requested,
            model_source=turn.model_source if turn.model else identity.model_source,
            step=turn.step,
            seq=draft.seq,
            order_source="flattened" if "orphan-answer" in draft.warnings else identity.order_source,
            call_id=draft.call_id,
            tool=draft.tool,
            request=draft.arguments.request,
            request_raw=draft.arguments.raw,
            parse_status=draft.arguments.status,
            outcome=verdict.outcome,
            error_source=verdict.source,
            status_code=status,
            response=response,
            finish_reason=turn.finish_reason,
            hint=hint.ops,
            input_tokens=turn.usage.input,
            cache_read_tokens=turn.usage.cache_read,
            cache_write_tokens=turn.usage.cache_write,
            output_tokens=turn.usage.output,
            reasoning_tokens=turn.usage.reasoning,
            usage_id=_usage_id(identity, turn),
            t_start=started.ns if started else None,
            t_end=ended.ns if ended else None,
            transport_retries=draft.transport_retries + (answer.transport_retries if answer else 0),
            source_format=identity.source_format,
            source_file=identity.source_file,
            source_pos=draft.place,
            warnings=tuple(warnings),
        )

    def _response(self, draft: Pending, answer: Answer) -> Any:
        if shallow(answer.content):
            return answer.content
        self.faults.add(draft.place, "too-deep", "an answer nests too deeply and was read as null", lost=False)
        return None


def _status(answer: Answer) -> int | None:
    return answer.status if answer.status is not None else status_of(answer.content)


def _readable(answer: Answer) -> Answer:
    return answer._replace(content=plain_content(answer.content), status=as_status(answer.status))


def plain_content(content: Any) -> Any:
    """Return what a tool answered: a JSON value if its text is one object or array, or its text."""
    if isinstance(content, list) and content and all(isinstance(each, dict) and "type" in each for each in content):
        texts = [each["text"] for each in content if isinstance(each.get("text"), str)]
        if texts:
            content = "\n".join(texts)
    if isinstance(content, str) and content.lstrip()[:1] in ("{", "["):
        try:
            return strict_json(content)
        except ValueError:
            return content
    return content


def _usage_id(identity: Identity, turn: Turn) -> str | None:
    if turn.usage == UNKNOWN:
        return None
    return turn.usage_id or f"{identity.episode_id}/{turn.step}"
