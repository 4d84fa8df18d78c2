"""The spans of one conversation put in order: turns of the model, and the tools that ran for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers import gen_ai
from invsim.traces.readers.arguments import Arguments, parse_arguments
from invsim.traces.readers.outcomes import TRANSPORT, as_status
from invsim.traces.readers.spans import Span
from invsim.traces.readers.turns import CUT, REFUSALS, Answer, Episode, Identity
from invsim.traces.readers.usage import span_usage
from invsim.traces.schema import Call


@dataclass
class Conversation:
    """Spans of one episode; ``calls`` yields its rows."""

    name: str
    source_format: str
    source_file: str
    faults: Faults
    spans: list[Span] = field(default_factory=list)

    def calls(self) -> Iterator[Call]:
        """Yield the rows: the calls in each turn's output with the tools that ran for them, and tools that ran besides.

        A tool belongs to the turn that asked for its call id, or else to the latest turn that began before it. Tools
        before any turn are steps of their own, and those that overlap in time one step. If a time is missing, the
        order of the file is all there is, and ``order_source`` is "flattened".
        """
        models, tools = self._without_wrappers()
        steps = [*models, *tools]
        timed = all(each.start is not None for each in steps)
        if timed:
            steps.sort(key=_begin)
            models.sort(key=_begin)
        identity = Identity(
            self.source_format, self.source_file, self.name, order_source="timestamp" if timed else "flattened"
        )
        episode = Episode(identity, self.faults)
        ran = _Ran(tools, self._http())
        asked = {id(each): [(call, ran.take(call, each)) for call in gen_ai.asked_calls(each)] for each in models}
        shown = {id(each): gen_ai.answered_calls(after) for each, after in pairwise(models)}
        busy_until = -1
        for span in steps:
            if gen_ai.is_model(span):
                self._add_turn(episode, span, asked[id(span)], ran, shown.get(id(span), {}))
                busy_until = -1
            elif not ran.is_taken(span):
                if not models or _begin(span) < _begin(models[0]):
                    if not timed or _begin(span) >= busy_until:
                        episode.turn()
                    busy_until = max(busy_until, span.end.ns if span.end else _begin(span))
                self._add_tool(episode, span, ran)
        yield from episode.calls()

    def _without_wrappers(self) -> tuple[list[Span], list[Span]]:
        """Return models' and tools' spans, without a model's around a model's and a tool's within the same tool's."""
        by_id = {(each.trace_id, each.span_id): each for each in self.spans}
        models = [each for each in self.spans if gen_ai.is_model(each)]
        around = {id(outer) for each in models for outer in _ancestors(each, by_id) if gen_ai.is_model(outer)}
        tools = [
            each
            for each in self.spans
            if gen_ai.is_tool(each)
            and not any(
                gen_ai.is_tool(outer) and gen_ai.tool_name(outer) == gen_ai.tool_name(each)
                for outer in _ancestors(each, by_id)
            )
        ]
        return [each for each in models if id(each) not in around], tools

    def _http(self) -> dict[tuple[str, str], list[Span]]:
        """Return the HTTP requests under each span, in time."""
        found: dict[tuple[str, str], list[Span]] = {}
        for each in sorted(self.spans, key=_begin):
            if each.parent_id and gen_ai.is_http(each):
                found.setdefault((each.trace_id, each.parent_id), []).append(each)
        return found

    def _add_turn(
        self,
        episode: Episode,
        span: Span,
        asked: list[tuple[gen_ai.Asked, Span | None]],
        ran: _Ran,
        shown: dict[str, Any],
    ) -> None:
        turn = episode.turn()
        told = span.attributes
        turn.model = told.text("gen_ai.response.model", "llm.model_name")
        turn.model_source = "span.attributes" if turn.model else None
        turn.model_requested = told.text("gen_ai.request.model")
        turn.usage, turn.usage_id = span_usage(told), f"{span.trace_id}/{span.span_id}"
        turn.finish_reason, turn.at = gen_ai.finish_reason(span), span.end or span.start
        for call, tool in asked:
            arguments = _arguments(call, tool, cut=turn.finish_reason in CUT)
            name = call.tool or (gen_ai.tool_name(tool) if tool else None)
            place, at = (tool.place, tool.start) if tool else (call.place, turn.at)
            pending = episode.call(place, name, arguments, call.call_id, at)
            if tool:
                episode.give(pending, ran.answer(tool))
            elif call.call_id in shown:
                episode.give(pending, Answer(shown[call.call_id]))
        if not turn.size and turn.finish_reason in REFUSALS:
            episode.refuse()

    def _add_tool(self, episode: Episode, span: Span, ran: _Ran) -> None:
        arguments = parse_arguments(gen_ai.arguments(span))
        call = episode.call(span.place, gen_ai.tool_name(span), arguments, gen_ai.call_id(span), span.start)
        episode.give(call, ran.answer(span))


class _Ran:
    """The tools that ran, each of which answers one call."""

    def __init__(self, tools: list[Span], http: dict[tuple[str, str], list[Span]]) -> None:
        self._http = http
        self._by_call: dict[str, list[Span]] = {}
        for each in sorted(tools, key=_begin):
            if call_id := gen_ai.call_id(each):
                self._by_call.setdefault(call_id, []).append(each)
        self._taken: set[int] = set()

    def take(self, call: gen_ai.Asked, after: Span) -> Span | None:
        """Return the first tool that ran for a call, not before it was asked for; models use ids again."""
        for each in self._by_call.get(call.call_id or "", ()):
            known = each.start is not None and after.start is not None
            same = call.tool is None or gen_ai.tool_name(each) in (call.tool, None)
            if same and id(each) not in self._taken and (not known or _begin(each) >= _begin(after)):
                self._taken.add(id(each))
                return each
        return None

    def is_taken(self, span: Span) -> bool:
        """Return whether the call that a tool ran for has been seen."""
        return id(span) in self._taken

    def answer(self, span: Span) -> Answer:
        """Return what a tool answered; of the HTTP requests it sent the last counts, the others were retries."""
        requests = self._http.get((span.trace_id, span.span_id), [])
        statuses = [as_status(gen_ai.http_status(each)) for each in requests]
        status = statuses[-1] if statuses else as_status(gen_ai.http_status(span))
        again = span.attributes.count("http.request.resend_count") or 0
        if all(each is None or each in TRANSPORT for each in statuses[:-1]):
            again = max(again, len(statuses) - 1)
        failure = span.attributes.text("error.type", "exception.type")
        failed = span.status == "ERROR" or failure is not None
        content = gen_ai.result(span)
        if content is None and failed:
            content = span.message or span.attributes.text("exception.message") or failure
        timed_out = failed and failure is not None and "timeout" in failure.lower()
        return Answer(content, failed or None, status, "timeout" if timed_out else None, span.end, again)


def _arguments(call: gen_ai.Asked, tool: Span | None, *, cut: bool) -> Arguments:
    """Return the arguments as the model wrote them, or, where that is lost, as the tool ran with them."""
    asked = parse_arguments(call.arguments, cut=cut)
    if tool is None:
        return asked
    ran = parse_arguments(gen_ai.arguments(tool))
    if ran.status != "ok" or gen_ai.arguments(tool) is None:
        return asked
    if call.arguments is None or asked.status == "invalid":
        return ran
    differ = asked.status == "ok" and asked.request != ran.request
    return asked._replace(warnings=(*asked.warnings, "arguments-differ")) if differ else asked


def _begin(span: Span) -> int:
    return span.start.ns if span.start else 0


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
