"""The spans of tools that ran, each of which answers one call, found by the call's id or by its name and time."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from invsim.traces.readers import gen_ai
from invsim.traces.readers.arguments import Arguments, parse_arguments
from invsim.traces.readers.gen_ai_messages import Asked, Shown
from invsim.traces.readers.outcomes import TRANSPORT, as_status
from invsim.traces.readers.spans import Span
from invsim.traces.readers.turns import Answer


def begin(span: Span) -> int:
    """Return when a span began; 0 where that is not known."""
    return span.start.ns if span.start else 0


class Found(NamedTuple):
    """A tool that ran for a call; ``by_order`` if that is known by its name and its time, for want of an id."""

    span: Span
    by_order: bool = False


class ToolRuns:
    """The tools that ran, each of which answers one call."""

    def __init__(self, tools: list[Span], http: dict[tuple[str, str], list[Span]]) -> None:
        self._http = http
        self._by_call: dict[str, list[Span]] = {}
        self._by_name: dict[str | None, list[Span]] = {}
        for each in sorted(tools, key=begin):
            self._by_name.setdefault(gen_ai.tool_name(each), []).append(each)
            if call_id := gen_ai.call_id(each):
                self._by_call.setdefault(call_id, []).append(each)
        self._taken: set[int] = set()
        self._told: set[int] = set()

    def take(self, call: Asked, after: Span) -> Found | None:
        """Return the first tool of a call's id, for models use ids again, that ran not before it was asked for."""
        for each in self._by_call.get(call.call_id or "", ()):
            known = each.start is not None and after.start is not None
            same = call.tool is None or gen_ai.tool_name(each) in (call.tool, None)
            if same and id(each) not in self._taken and (not known or begin(each) >= begin(after)):
                self._taken.add(id(each))
                return Found(each)
        return None

    def take_by_order(self, call: Asked, after: int, until: int) -> Found | None:
        """Return a tool of a call's name that ran before the next turn, if one of both has no id.

        One with the call's arguments comes first.
        """
        named = self._by_name.get(call.tool, []) if call.tool else []
        low, high = (bisect_left(named, at, key=begin) for at in (after, until))
        free = [
            each for each in named[low:high] if not (self.is_taken(each) or (call.call_id and gen_ai.call_id(each)))
        ]
        if not free:
            return None
        chosen = next((each for each in free if _same(call, each)), free[0])
        self._taken.add(id(chosen))
        return Found(chosen, by_order=True)

    def tells_of(self, call: Asked) -> bool:
        """Return whether a tool without an id ran for a call that no turn tells of; each tool tells of one call."""
        for each in self._by_name.get(call.tool, ()):
            free = not self.is_taken(each) and id(each) not in self._told and not gen_ai.call_id(each)
            if free and _same(call, each):
                self._told.add(id(each))
                return True
        return False

    def is_taken(self, span: Span) -> bool:
        """Return whether the call that a tool ran for has been seen."""
        return id(span) in self._taken

    def answer(self, span: Span, shown: Shown | None = None) -> Answer:
        """Return what a tool answered, or else what the model was shown of it.

        Of the HTTP requests that it sent the last counts, the others were retries.
        """
        requests = self._http.get((span.trace_id, span.span_id), [])
        statuses = [as_status(gen_ai.http_status(each)) for each in requests]
        status = statuses[-1] if statuses else as_status(gen_ai.http_status(span))
        again = span.attributes.count("http.request.resend_count") or 0
        if all(each is None or each in TRANSPORT for each in statuses[:-1]):
            again = max(again, len(statuses) - 1)
        failed = gen_ai.failed(span)
        content = gen_ai.result(span)
        if content is None and shown is not None:
            content, failed = shown.content, failed or shown.failed is True
        if content is None and failed:
            content = gen_ai.complaint(span)
        timed_out = failed and "timeout" in (gen_ai.failure(span) or "").lower()
        return Answer(content, failed or None, status, "timeout" if timed_out else None, span.end, again)


def arguments_of(call: Asked, tool: Span | None, *, cut: bool) -> Arguments:
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


def _same(call: Asked, tool: Span) -> bool:
    return parse_arguments(call.arguments).request == parse_arguments(gen_ai.arguments(tool)).request
