"""Items of OpenAI's Responses API, and the chat messages among them, into the turns and calls of an episode.

A call is what the model asked for in words of its own and was answered in words: functions, custom tools, tools of MCP
servers (which the provider runs: the call holds its answer, and one that waited for approval answers its request), and
the shells and patches that the client runs. Passed over are

- web and file searches, the code interpreter, images and tool searches: the provider runs them within its response, and
  an item need not hold what the model was shown, so that nobody can tell what became of them;
- the computer: its answer is a picture;
- what a program of the model's calls: the model wrote the program, and does not see the answers to its calls.

A turn goes on until something comes from outside, a message or an answer. A response is one turn, whatever it holds,
unless answers of the client stand within it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from invsim.traces.readers.arguments import Arguments, parse_arguments
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.messages import add_message, time_of
from invsim.traces.readers.outcomes import as_status
from invsim.traces.readers.times import Moment
from invsim.traces.readers.turns import CUT, REFUSALS, Answer, Episode, Turn
from invsim.traces.readers.usage import UNKNOWN, Usage
from invsim.traces.schema import Outcome

_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "mcp_call": "arguments",
    "mcp_approval_request": "arguments",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
"""Items that are calls, and the field in which each holds what it asks for."""

_NAMED = {"local_shell_call": "local_shell", "shell_call": "shell", "apply_patch_call": "apply_patch"}
"""Tools that only the type of the call names."""

_IDS = {
    "mcp_call": ("approval_request_id", "id"),
    "mcp_approval_request": ("id",),
    "mcp_approval_response": ("approval_request_id",),
    "local_shell_call_output": ("call_id", "id"),
}
"""Where the id of the call stands, if not under "call_id"; an approved call goes by that of the request."""

_ANSWERS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
        "mcp_approval_response",
    }
)
_SAID = frozenset(
    {
        "reasoning",
        "program",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "tool_search_call",
        "computer_call",
    }
)
"""Items of the model's that are no calls here."""

_HEARD = frozenset({"computer_call_output"})
_ASIDE = frozenset(
    {
        "additional_tools",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "configuration_update",
        "ghost_snapshot",
        "item_reference",
        "mcp_list_tools",
        "program_output",
        "tool_search_output",
    }
)
"""Items that neither begin a turn nor end one."""

KINDS = frozenset({*_CALLS, *_ANSWERS, *_SAID, *_HEARD, *_ASIDE})
"""Types of items that are no messages."""

_PARTS = ("output_text", "refusal")
_UNDONE = frozenset({"incomplete", "in_progress"})


class Told(NamedTuple):
    """What a log says of a turn besides its items; see ``Turn``."""

    model: str | None = None
    model_requested: str | None = None
    model_source: str | None = None
    finish_reason: str | None = None
    usage: Usage = UNKNOWN
    usage_id: str | None = None
    at: Moment | None = None


class Items:
    """Takes the items and messages of one conversation in order."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.told = Told()
        """Of the turns that begin from here on."""
        self._turn: Turn | None = None
        self._open = False
        self._begun = False
        self._responding = False
        self._passed: set[str | None] = set()

    def add(self, item: Fields) -> None:
        """Add what one item or message tells."""
        kind = _kind(item)
        if kind == "mcp_call" and self._was_approved(item):
            if (answer := _answer_within(item)) is not None:
                self.episode.answer(item.place, _call_id(item), answer)
        elif kind in _CALLS:
            self._add_call(item, kind)
        elif kind in _ANSWERS:
            self._add_answer(item, kind)
        elif kind in _SAID:
            self._go_on()
        elif kind in _HEARD:
            self._open = False
        elif kind not in _ASIDE:
            if "role" in item or "type" not in item:
                self._add_message(item)
            else:
                written = repr(kind[:40]) if kind else "that is no text"
                item.faults.add(item.at("type"), "unknown-item", f"an item of a type {written}")

    def add_input(self, request: Fields) -> None:
        """Add what a request sends: text, or items, of which it may send those that came before once more."""
        met: Counter[str] = Counter()
        self._open = False
        for item in request.rows("input") if not isinstance(request.data.get("input"), str) else ():
            if self._came_before(item, met):
                self._open = False
            else:
                self.add(item)
        self._open, self._begun = False, True

    def add_response(self, response: Fields, told: Told) -> None:
        """Add what a response holds, as a turn of its own."""
        self.told, self._open, self._responding = told, False, True
        turn = self._go_on()
        for item in response.rows("output"):
            self.add(item)
        if told.finish_reason in REFUSALS and not turn.size:
            self.episode.refuse()
        self.told, self._open, self._responding = Told(), False, False

    def bill(self, usage: Usage) -> None:
        """Note what the latest turn has used."""
        if self._turn is not None:
            self._turn.usage = usage

    def _go_on(self) -> Turn:
        """Return the turn that the model's next item belongs to."""
        if self._turn is None or not self._open:
            self._turn = self.episode.turn()
            for name, value in self.told._asdict().items():
                setattr(self._turn, name, value)
        self._open = True
        return self._turn

    def _add_message(self, message: Fields) -> None:
        parts = _parts(message)
        if not parts and not (self._responding and message.data.get("role") == "assistant"):
            begun = add_message(message, self.episode)
            self._turn, self._open = begun or self._turn, begun is not None
        elif not self._go_on().size and "refusal" in parts:
            self.episode.refuse()

    def _was_approved(self, item: Fields) -> bool:
        """Whether a call was asked for before, in a request for approval that still waits for its answer."""
        return "approval_request_id" in item and self.episode.awaits(_call_id(item))

    def _add_call(self, item: Fields, kind: str) -> None:
        call_id = _call_id(item)
        if _is_of_program(item):
            self._passed.add(call_id)
            return
        turn = self._go_on()
        status = item.text("status")
        cut = status in _UNDONE or (status is None and turn.finish_reason in CUT)
        at = time_of(item) or turn.at
        call = self.episode.call(item.place, _tool(item, kind), _arguments(item, kind, cut), call_id, at)
        if call is not None and (answer := _answer_within(item)) is not None:
            self.episode.give(call, answer)
            call.within = True

    def _add_answer(self, item: Fields, kind: str) -> None:
        call_id = _call_id(item)
        if _is_of_program(item) or (call_id is not None and call_id in self._passed):
            return
        self._open = False
        if kind != "mcp_approval_response":
            self.episode.answer(item.place, call_id, _answer(item), _tool(item, kind))
        elif item.flag("approve") is False:
            denied = Answer(item.data.get("reason"), outcome="denied", at=time_of(item))
            self.episode.answer(item.place, call_id, denied)

    def _came_before(self, item: Fields, met: Counter[str]) -> bool:
        """Whether an item of a request is one that came before; a call and its answer are known by the call's id.

        ``met`` counts the calls of each id in the request, for ids are used again.
        """
        kind = _kind(item)
        call_id = _call_id(item) if kind in _CALLS or kind in _ANSWERS else None
        if call_id is None:
            return self._begun and (kind in _SAID or item.data.get("role") == "assistant")
        calls = self.episode.asked(call_id)
        if kind in _CALLS and "approval_request_id" not in item:
            met[call_id] += 1
            return len(calls) >= met[call_id]
        if 0 < (number := met[call_id]) <= len(calls):
            return calls[number - 1].answer is not None
        return bool(calls) and not self.episode.awaits(call_id)


def is_item(value: Any) -> bool:
    """Return whether a value is an item that is no message."""
    return isinstance(value, dict) and isinstance(kind := value.get("type"), str) and kind in KINDS


def holds_items(value: Any) -> bool:
    """Return whether a value is a list in which there are items, or messages that say that they are items."""
    return isinstance(value, list) and any(
        is_item(each) or (isinstance(each, dict) and each.get("type") == "message" and "role" in each) for each in value
    )


def calls_in(value: Any) -> Iterator[tuple[str, str, str]]:
    """Yield of each call in a list of items its id, tool and arguments: what it is known by in another list."""
    for each in value if isinstance(value, list) else ():
        if is_item(each) and (kind := each["type"]) in _CALLS:
            call_id = next((found for key in _IDS.get(kind, ("call_id",)) if (found := each.get(key))), None)
            name, written = each.get("name"), each.get(_CALLS[kind])
            if isinstance(call_id, str):
                yield call_id, name if isinstance(name, str) else "", written if isinstance(written, str) else ""


def _kind(item: Fields) -> str:
    kind = item.data.get("type")
    return kind if isinstance(kind, str) else ""


def _call_id(item: Fields) -> str | None:
    return item.text(*_IDS.get(_kind(item), ("call_id",)))


def _parts(message: Fields) -> list[str]:
    """Return the types of the parts by which a message of the model is an item of a response, not a turn of its own."""
    content = message.data.get("content")
    if message.data.get("role") != "assistant" or not isinstance(content, list):
        return []
    kinds = [each.get("type") for each in content if isinstance(each, dict)]
    return [each for each in kinds if each in _PARTS]


def _is_of_program(item: Fields) -> bool:
    caller = item.data.get("caller")
    return isinstance(caller, dict) and caller.get("type") == "program"


def _tool(item: Fields, kind: str) -> str | None:
    """Return the tool that an item names, within its namespace or its server."""
    name, within = item.text("name"), item.text("namespace", "server_label")
    return f"{within}.{name}" if name and within else name or _NAMED.get(kind)


def _arguments(item: Fields, kind: str, cut: bool) -> Arguments:
    written = item.data.get(_CALLS[kind])
    if kind != "custom_tool_call" or not isinstance(written, str):
        return parse_arguments(written, cut=cut)
    # Text of any making, so that nothing but the log tells whether it is all there.
    return Arguments(None, written, "truncated") if cut else parse_arguments({"input": written})


def _answer(item: Fields) -> Answer:
    output = item.data.get("output")
    failed, outcome = _of_shell(output) if _kind(item) == "shell_call_output" else (False, None)
    flag = True if failed or item.data.get("status") == "failed" else None
    return Answer(output, flag, item.count("status_code"), outcome, time_of(item))


def _of_shell(output: Any) -> tuple[bool, Outcome | None]:
    """Return whether any of a shell's commands failed, and whether one ran out of time."""
    chunks = [each for each in output if isinstance(each, dict)] if isinstance(output, list) else []
    ends = [end for each in chunks if isinstance(end := each.get("outcome"), dict)]
    if any(each.get("type") == "timeout" for each in ends):
        return True, "timeout"
    return any(each.get("exit_code") not in (None, 0) for each in ends), None


def _answer_within(item: Fields) -> Answer | None:
    """Return the answer that a call of an MCP server's tool holds; None while it has none."""
    if _kind(item) != "mcp_call":
        return None
    error, output, status = (item.data.get(key) or None for key in ("error", "output", "status"))
    if error is None and output is None and status not in ("completed", "failed"):
        return None
    code = None
    if isinstance(error, dict):
        code = as_status(error.get("code")) if error.get("type") == "http_error" else None
        error = next((each for key in ("content", "message") if (each := error.get(key)) is not None), error)
    failed = error is not None or status == "failed"
    return Answer(output if error is None else error, failed or None, code, at=time_of(item))
