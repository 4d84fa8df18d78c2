"""The spans of one conversation put in order: turns of the model, and the tools that ran for them."""

from __future__ import annotations

from collections.abc import Iterator

from invsim.traces.reader import Faults
from invsim.traces.readers import gen_ai
from invsim.traces.readers.arguments import parse_arguments
from invsim.traces.readers.fields import LARGEST
from invsim.traces.readers.gen_ai_messages import Asked, Shown
from invsim.traces.readers.spans import Span
from invsim.traces.readers.tool_runs import Found, ToolRuns, arguments_of, begin
from invsim.traces.readers.turns import CUT, REFUSALS, Answer, Episode, Identity
from invsim.traces.readers.usage import span_usage
from invsim.traces.schema import Call, OrderSource

FROM_HISTORY = "from-history"
"""Warning on a call that is known only from what a later turn was shown: the log lacks the turn that made it."""


class Conversation:
    """Spans of one episode; ``calls`` yields its rows.

    Parameters
    ----------
    name : str
    spans : list of Span
    source_format, source_file : str
    faults : Faults
    """

    def __init__(self, name: str, spans: list[Span], source_format: str, source_file: str, faults: Faults) -> None:
        self.spans, self.faults = spans, faults
        turns, self.tools = self._without_wrappers()
        self.timed = all(each.start is not None for each in (*(turn.span for turn in turns), *self.tools))
        self.turns = sorted(turns, key=lambda each: begin(each.span)) if self.timed else turns
        order: OrderSource = "timestamp" if self.timed else "flattened"
        self.identity = Identity(source_format, source_file, name, order_source=order)
        self._look_ahead()

    @property
    def told(self) -> set[str]:
        """The ids of the calls that turns and tools tell of."""
        asked = (each.call_id for turn in self.turns for each in turn.asked if each.tool)
        return {each for each in (*asked, *map(gen_ai.call_id, self.tools)) if each}

    def calls(self, told: set[str]) -> Iterator[Call]:
        """Yield the rows: the calls in each turn's output with the tools that ran for them, and tools that ran besides.

        A tool belongs to the turn that asked for its call id, or else to the latest turn that began before it. Tools
        before any turn are steps of their own, and those that overlap in time one step. Calls that only the history
        shown to a turn tells of are turns before it. If a time is missing, the order of the file is all there is, and
        ``order_source`` is "flattened".

        Parameters
        ----------
        told : set of str
            Ids of the calls that turns and tools of the file tell of, which a history repeats. Takes those of the rows.
        """
        episode = Episode(self.identity, self.faults)
        runs = ToolRuns(self.tools, self._http())
        for turn in self.turns:
            turn.runs = [runs.take(call, turn.span) for call in turn.asked]
        for number, turn in enumerate(self.turns, 1):
            after, until = begin(turn.span), LARGEST
            if self.timed and number < len(self.turns):
                until = begin(self.turns[number].span)
            found = zip(turn.runs, turn.asked, strict=True)
            turn.runs = [run or runs.take_by_order(call, after, until) for run, call in found]
        self._place_history(runs, told)
        steps: list[Span | _Turn] = [*self.turns, *self.tools]
        if self.timed:
            steps.sort(key=lambda each: begin(each.span if isinstance(each, _Turn) else each))
        first = begin(self.turns[0].span) if self.turns else LARGEST
        busy_until = -1
        for step in steps:
            if isinstance(step, _Turn):
                for missed in step.before:
                    episode.turn()
                    self._add_missed(episode, missed)
                if step.span.answered:
                    self._add_turn(episode, step, runs)
                busy_until = -1
            elif not runs.is_taken(step):
                if begin(step) < first:
                    if not self.timed or begin(step) >= busy_until:
                        episode.turn()
                    busy_until = max(busy_until, step.end.ns if step.end else begin(step))
                self._add_tool(episode, step, runs)
        yield from episode.calls()

    def _without_wrappers(self) -> tuple[list[_Turn], list[Span]]:
        """Return turns and tools, without a model's span around a model's and a tool's within the same tool's.

        What a span around others was answered is what the last of them was, which may not have recorded it.
        """
        by_id = {(each.trace_id, each.span_id): each for each in self.spans}
        models = [each for each in self.spans if gen_ai.is_model(each)]
        last: dict[int, tuple[Span, Span]] = {}
        for each in models:
            for outer in _ancestors(each, by_id):
                if gen_ai.is_model(outer) and (id(outer) not in last or begin(each) >= begin(last[id(outer)][1])):
                    last[id(outer)] = outer, each
        around: dict[int, list[Span]] = {}
        for outer, inner in last.values():
            around.setdefault(id(inner), []).append(outer)
        tools = [
            each
            for each in self.spans
            if gen_ai.is_tool(each)
            and not any(
                gen_ai.is_tool(outer) and gen_ai.tool_name(outer) == gen_ai.tool_name(each)
                for outer in _ancestors(each, by_id)
            )
        ]
        return [_Turn(each, around.get(id(each), [])) for each in models if id(each) not in last], tools

    def _http(self) -> dict[tuple[str, str], list[Span]]:
        """Return the HTTP requests under each span, in time."""
        found: dict[tuple[str, str], list[Span]] = {}
        for each in sorted(self.spans, key=begin):
            if each.parent_id and gen_ai.is_http(each):
                found.setdefault((each.trace_id, each.parent_id), []).append(each)
        return found

    def _look_ahead(self) -> None:
        """Find the answers to each turn's calls, and names that are lost, in what the nearest later turn was shown."""
        told = self.told
        answers: dict[str, Shown] = {}
        named: dict[str, Asked] = {}
        for turn in reversed(self.turns):
            turn.answers = {each.call_id: answers[each.call_id] for each in turn.asked if each.call_id in answers}
            turn.asked = [
                each if each.tool else each._replace(tool=named[each.call_id].tool) if each.call_id in named else each
                for each in turn.asked
            ]
            shown, earlier = turn.read_inputs()
            answers |= shown
            if any(each.call_id and each.call_id not in told for calls in earlier for each in calls):
                turn.shown, turn.earlier = shown, earlier
                named |= {each.call_id: each for calls in earlier for each in calls if each.call_id}

    def _place_history(self, runs: ToolRuns, told: set[str]) -> None:
        """Put the calls that only a history tells of into their turn, or into one before the next in that history."""
        owners: dict[str, _Turn] = {}
        for turn in self.turns:
            after = turn
            for calls in reversed(turn.earlier):
                owner = next((owners[each.call_id] for each in calls if each.call_id in owners), None)
                fresh = [each for each in calls if each.call_id and each.call_id not in told]
                told.update(each.call_id or "" for each in fresh)
                missed = [(each, turn.shown) for each in fresh if not runs.tells_of(each)]
                if owner is not None:
                    owner.missed += missed
                    after = owner
                elif missed:
                    after.before.insert(0, missed)
            owners |= {each.call_id: turn for each in turn.asked if each.call_id}

    def _add_missed(self, episode: Episode, missed: list[tuple[Asked, dict[str, Shown]]]) -> None:
        for call, shown in missed:
            arguments = parse_arguments(call.arguments)
            arguments = arguments._replace(warnings=(*arguments.warnings, FROM_HISTORY))
            pending = episode.call(call.place, call.tool, arguments, call.call_id)
            if (answer := shown.get(call.call_id or "")) is not None:
                episode.give(pending, Answer(answer.content, answer.failed))

    def _add_turn(self, episode: Episode, step: _Turn, runs: ToolRuns) -> None:
        turn, span, told = episode.turn(), step.span, step.span.attributes
        turn.model = told.text("gen_ai.response.model", "llm.model_name")
        turn.model_source = "span.attributes" if turn.model else None
        turn.model_requested = told.text("gen_ai.request.model")
        turn.usage, turn.usage_id = span_usage(told), f"{span.trace_id}/{span.span_id}"
        turn.finish_reason, turn.at = gen_ai.finish_reason(span, step.outputs), span.end or span.start
        for call, found in zip(step.asked, step.runs, strict=True):
            tool = found.span if found else None
            arguments = arguments_of(call, tool, cut=turn.finish_reason in CUT)
            if found and found.by_order:
                arguments = arguments._replace(warnings=(*arguments.warnings, "matched-by-order"))
            name = call.tool or (gen_ai.tool_name(tool) if tool else None)
            place, at = (tool.place, tool.start) if tool else (call.place, turn.at)
            call_id = call.call_id or (gen_ai.call_id(tool) if tool else None)
            pending = episode.call(place, name, arguments, call_id, at)
            shown = step.answers.get(call.call_id or "")
            if tool:
                episode.give(pending, runs.answer(tool, shown))
            elif shown is not None:
                episode.give(pending, Answer(shown.content, shown.failed))
        self._add_missed(episode, step.missed)
        if not turn.size and turn.finish_reason in REFUSALS:
            episode.refuse()

    def _add_tool(self, episode: Episode, span: Span, runs: ToolRuns) -> None:
        arguments = parse_arguments(gen_ai.arguments(span))
        call = episode.call(span.place, gen_ai.tool_name(span), arguments, gen_ai.call_id(span), span.start)
        episode.give(call, runs.answer(span))


class _Turn:
    """A model's span, and what was read of it, or else of the spans around it.

    ``earlier`` are the turns that its history tells of, and ``shown`` their answers, where nothing else tells of them.
    """

    def __init__(self, span: Span, around: list[Span]) -> None:
        self.span, self.around = span, around
        outputs = [gen_ai.outputs_of(each) for each in (span, *around)]
        self.outputs = next((each for each in outputs if gen_ai.asked_calls(each)), outputs[0])
        self.asked = gen_ai.asked_calls(self.outputs)
        self.answers: dict[str, Shown] = {}
        self.shown: dict[str, Shown] = {}
        self.earlier: list[list[Asked]] = []
        self.runs: list[Found | None] = []
        self.missed: list[tuple[Asked, dict[str, Shown]]] = []
        self.before: list[list[tuple[Asked, dict[str, Shown]]]] = []

    def read_inputs(self) -> tuple[dict[str, Shown], list[list[Asked]]]:
        """Return the answers and the calls in what it was shown; it repeats all that came before, and is not held."""
        inputs = [message for each in (*reversed(self.around), self.span) for message in gen_ai.inputs_of(each)]
        return gen_ai.answered_calls(inputs), gen_ai.earlier_calls(inputs)


def _ancestors(span: Span, by_id: dict[tuple[str, str], Span]) -> Iterator[Span]:
    """Yield the spans around a span that are in the file; a ring of parents ends where it closes."""
    seen = {span.span_id}
    while span.parent_id and span.parent_id not in seen:
        seen.add(span.parent_id)
        outer = by_id.get((span.trace_id, span.parent_id))
        if outer is None:
            return
        yield outer
        span = outer
