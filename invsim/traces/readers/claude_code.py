"""Claude Code sessions: JSON lines, one a content block, linked by ``uuid`` and ``parentUuid`` into trees.

An episode is a path through such a tree, from its root to a leaf, for who retried what is told along it. A user who
goes back to an earlier message and goes on from there forks the tree. The path on which the session was spoken on last
is the session's episode. A branch that was left is an episode of its own, SESSION#UUID after its first line:

- it has the calls from the fork on; those before it are the session's, so that each call counts once;
- its steps count on from the fork, and its first call carries the warning "begins-late", for its first try came before;
- it carries the warning "log-ends": the model was not let go on, and gave nothing up;
- its task is the session, which is the cluster that both belong to.

A line whose parent is not in the file begins an episode in the same way, and what was before it is left. A session that
was taken up again under another id, with copies of its lines, hangs from the lines that it copied, in the same file; of
files that are read together the first counts what both tell of (``traces.repeats``). Compaction forks nothing: the
session goes on. Sidechains, the sessions of subagents, are episodes of their own. Without links the order is the file's
("index", and "flattened" if there are forks besides).

Lines that share a message id are one turn, with one bill, of which the last line has the final figures; a call's answer
may stand between two of them. A message id used again in another session, or under another request id, is another turn.
A client's own words in place of the model's, such as the error of the service, are no turn, and after them, or after an
interruption, nothing was given up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.messages import add_message, blocks_of, time_of
from invsim.traces.readers.outcomes import judge
from invsim.traces.readers.records import read_records
from invsim.traces.readers.session_tree import paths
from invsim.traces.readers.turns import Answer, Episode, Identity, Turn, plain_content
from invsim.traces.schema import Call, Outcome

_SESSION = re.compile(rb'"sessionId"\s*:')
_EVENT = re.compile(rb'"(?:uuid|parentUuid|isSidechain)"\s*:')
_INTERRUPTED = "[Request interrupted by user"
_SYNTHETIC = "<synthetic>"
_REJECTED = "User rejected tool use"
_STOPPED = ("interrupted", "cancelled")
"""Kinds of denial that are none: the call was not run, or not to its end."""


class ClaudeCodeReader:
    """Reads sessions of Claude Code."""

    name = "claude-code"

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether there are sessions with linked lines."""
        return bool(_SESSION.search(head)) and bool(_EVENT.search(head))

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls of a file, session by session."""
        lines = [
            Fields(value, place, faults)
            for place, value, _, _ in read_records(path, faults, _is_line)
            if value["type"] in ("user", "assistant") or "parentUuid" in value
        ]
        torn = any(each.kind == "torn-line" for each in faults.found)
        for each in paths(lines, path.stem, faults, _turn_of):
            identity = Identity(
                source_format=self.name,
                source_file=str(path),
                episode_id=each.name,
                task_id=each.thread if each.name != each.thread else "",
                order_source=each.order_source,
            )
            session = _Session(Episode(identity, faults, each.step))
            for line in each.lines:
                session.add(line)
            complete = not (torn or each.left or session.stopped)
            yield from session.episode.calls(complete=complete, late=each.late)


def _is_line(value: Any) -> bool:
    """Whether a value is a line of a session: summaries and snapshots are, and tell nothing of calls."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _turn_of(line: Fields) -> str | None:
    """Return what the lines of a turn share, or None for a line that is no turn of the model."""
    message = line.data.get("message")
    if line.data.get("type") != "assistant" or not isinstance(message, dict) or line.data.get("isMeta") is True:
        return None
    if _is_clients(line, message):
        return None
    return _key(line, message) or line.place


def _is_clients(line: Fields, message: dict[str, Any]) -> bool:
    """Return whether the client wrote a message in the model's place; one that calls tools is not its own."""
    content = message.get("content")
    calls = isinstance(content, list) and any(map(_is_call, content))
    return not calls and (line.data.get("isApiErrorMessage") is True or message.get("model") == _SYNTHETIC)


def _is_call(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_use"


def _key(line: Fields, message: dict[str, Any]) -> str | None:
    message_id, request_id = message.get("id"), line.data.get("requestId")
    if not isinstance(message_id, str) or not message_id:
        return None
    return f"{message_id}/{request_id if isinstance(request_id, str) else ''}"


class _Session:
    """Adds lines to an episode; ``stopped`` tells that since the model's last turn it was kept from going on."""

    def __init__(self, episode: Episode) -> None:
        self.episode, self.stopped = episode, False
        self._called: set[tuple[str, str]] = set()

    def add(self, line: Fields) -> None:
        """Add what a line tells."""
        message = line.table("message")
        kind = line.data.get("type")
        if message is None or kind not in ("user", "assistant") or line.data.get("isMeta") is True:
            return
        if kind == "user":
            self._add_answers(line, message)
        elif _is_clients(line, message.data):
            self.stopped = self.stopped or line.data.get("isApiErrorMessage") is True
        else:
            self._add_turn(line, message)
            self.stopped = False

    def _add_answers(self, line: Fields, message: Fields) -> None:
        at = time_of(line)
        content = message.data.get("content")
        if isinstance(content, str):
            self._add_words(content)
            return
        blocks = list(blocks_of(message))
        answers = [each for each in blocks if each.data.get("type") == "tool_result"]
        for block in answers:
            outcome = _outcome(line, block) if len(answers) == 1 else None
            answer = Answer(block.data.get("content"), block.flag("is_error"), outcome=outcome, at=at)
            self.episode.answer(block.place, block.text("tool_use_id"), answer)
        for block in blocks:
            if block.data.get("type") == "text":
                self._add_words(block.data.get("text"))

    def _add_words(self, words: Any) -> None:
        if isinstance(words, str) and words.startswith(_INTERRUPTED):
            self.episode.stop(Answer(words, True, outcome="not_executed"))
            self.stopped = True

    def _add_turn(self, line: Fields, message: Fields) -> None:
        at, key = time_of(line), _key(line, message.data)

        def dialect(_: Fields, turn: Turn) -> None:
            turn.at = turn.at or at
            if key:
                turn.usage_id = f"{self.episode.identity.episode_id}/{key}"
            if turn.model == _SYNTHETIC:  # written by the client, not served
                turn.model = turn.model_source = None

        add_message(self._once(message, key), self.episode, key=key, dialect=dialect)

    def _once(self, message: Fields, key: str | None) -> Fields:
        """Return a message without the calls that a copy of it, under another uuid, has told of."""
        content = message.data.get("content")
        if key is None or not isinstance(content, list):
            return message
        kept: list[Any] = []
        for block in content:
            call_id = block.get("id") if _is_call(block) else None
            again = isinstance(call_id, str) and (key, call_id) in self._called
            if again:
                message.faults.add(message.place, "duplicate-call", f"call {call_id!r} came before", lost=False)
            elif isinstance(call_id, str):
                self._called.add((key, call_id))
            kept.append({} if again else block)
        return Fields({**message.data, "content": kept}, message.place, message.faults)


def _outcome(line: Fields, block: Fields) -> Outcome | None:
    """Return what a line says outright of what became of a call: denied by a person or a rule, or kept from its end."""
    kind, result = line.data.get("toolDenialKind"), line.data.get("toolUseResult")
    if isinstance(kind, str) and kind:
        return "not_executed" if kind in _STOPPED else "denied"
    if result == _REJECTED:
        return "denied"
    if isinstance(result, dict) and result.get("interrupted") is True:
        timed_out = judge(plain_content(block.data.get("content")), flag=True).outcome == "timeout"
        return "timeout" if timed_out else "not_executed"
    return None
