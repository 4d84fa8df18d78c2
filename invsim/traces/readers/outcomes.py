"""What became of a call, told by a flag, a status, or the words of the answer; how it was told is kept."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from invsim.traces.readers.fields import as_count
from invsim.traces.schema import ErrorSource, Outcome

TRANSPORT = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses at which a client sends a request again without asking the model."""

LONGEST_COMPLAINT = 300
"""Characters of the first line that are looked at."""

_DENIED = re.compile(
    r"request(?:ed|s)? permissions?\b|(?:have|has)n't granted|doesn't want to (?:proceed|take)|"
    r"\b(?:user|human|operator|approver) (?:has )?(?:rejected|declined|denied)|approval (?:was )?(?:denied|rejected)|"
    r"not approved by",
    re.IGNORECASE,
)
_NOT_RUN = re.compile(r"request interrupted by user|\b(?:call|tool|execution) was (?:cancelled|canceled|skipped)", re.I)
_TIMEOUT = re.compile(r"\btimed? ?out\b|\bdeadline exceeded\b", re.IGNORECASE)

# Openings that nothing but an error has.
_CERTAIN = re.compile(
    r"<tool_use_error>|traceback \(most recent call last\)|error (?:executing|calling|running|invoking) "
    r"|(?-i:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b\s*[:(])",
    re.IGNORECASE,
)
# "Error: handling guide" opens like an error; what follows must complain.
_OPENING = re.compile(
    r"(?:\w+ )?(?:error|failed|failure|exception)\s*(?:\(\w+\)|\[\w+\]|\d{3})?\s*[:\-–—]\s", re.IGNORECASE
)
_COMPLAINT = re.compile(
    r"\b(?:not|no such|cannot|can't|couldn't|unable|fail(?:ed|ure|s)?|missing|invalid|requir(?:ed|es)|must|should|"
    r"unknown|unexpected|unsupported|unauthori[sz]ed|forbidden|denied|exceed(?:s|ed)?|insufficient|already|wrong|"
    r"illegal|doesn't|don't|isn't|out of range|too \w+|mismatch(?:ed)?|expired|refused|rejected|undefined|conflict|"
    r"exception|timed out|timeout|[45]\d\d)\b",
    re.IGNORECASE,
)
# "missing required parameter: owner" opens with the complaint itself.
_BARE = re.compile(
    r"(?:missing|invalid|unknown|unrecogni[sz]ed|unexpected|unsupported)\b[^.:]{0,60}"
    r"\b(?:parameters?|arguments?|fields?|values?|propert(?:y|ies)|keys?|inputs?|requests?)\s*(?:$|[:'\"`(])",
    re.IGNORECASE,
)
# A person's veto, where a log flags nothing.
_VETO = re.compile(r"(?:claude|the (?:agent|assistant|model)) requested permissions?|the user doesn't want to", re.I)
_FAILED = frozenset({"error", "failed", "failure"})


class Verdict(NamedTuple):
    """What became of a call, and how it is known."""

    outcome: Outcome
    source: ErrorSource = "none"


def judge(content: Any, *, flag: bool | None = None, status: int | None = None) -> Verdict:
    """Tell what became of a call that was answered.

    Parameters
    ----------
    content : object
        The answer: text, or a JSON value.
    flag : bool or None
        What the log says outright. False is no proof: servers put errors into answers that they send as results.
    status : int or None
        An HTTP status.

    Returns
    -------
    Verdict
        A flag that is up decides, then a status of 400 or more, then the words (``complains``). The words of an error
        also tell whether the call was denied by a person, ran out of time, or was never run.
    """
    text = words(content)
    source: ErrorSource
    if flag:
        source = "flag"
    elif status is not None and status >= 400:
        source = "status"
    elif complains(content) or _VETO.match(text):
        source = "predicate"
    else:
        return Verdict("ok")
    return Verdict(_kind(text, status), source)


def complains(content: Any) -> bool:
    """Return whether an answer reads as an error: the predicate behind ``error_source`` "predicate".

    JSON complains by a member ``error`` or ``isError`` that is set, ``success`` or ``ok`` that is false, a ``status``
    of "error" or "failed", or ``errors`` without ``data``. Text complains by its first line alone: an exception's
    name, a word such as "Error:" followed by what is wrong ("not found", "must be", "missing" ...), or an opening such
    as "missing required parameter". A heading such as "Error: handling guide" does not.
    """
    if isinstance(content, dict):
        return _body_complains(content)
    line = words(content).lstrip()[:LONGEST_COMPLAINT].split("\n", 1)[0]
    if _CERTAIN.match(line) or _BARE.match(line):
        return True
    opening = _OPENING.match(line)
    return bool(opening and _COMPLAINT.search(line, opening.end()))


def status_of(content: Any) -> int | None:
    """Return the HTTP status that a JSON answer states of itself."""
    if not isinstance(content, dict):
        return None
    for holder in (content, content.get("error")):
        if isinstance(holder, dict):
            for key in ("status_code", "statusCode", "http_status", "status"):
                if as_status(holder.get(key)) is not None:
                    return as_status(holder.get(key))
    return None


def as_status(value: Any) -> int | None:
    """Return an HTTP status, 100 to 599, written as a number or as text."""
    found = as_count(value)
    return found if found is not None and 100 <= found <= 599 else None


def words(content: Any) -> str:
    """Return the text that tells what an answer says: itself, or the message of a JSON error."""
    if isinstance(content, str):
        return content
    if not isinstance(content, dict):
        return ""
    error = content.get("error")
    for each in (error.get("message") if isinstance(error, dict) else error, content.get("message")):
        if isinstance(each, str):
            return each
    return ""


def _body_complains(body: dict[str, Any]) -> bool:
    error = body.get("error")
    state = body.get("status")
    return (
        error is True
        or (isinstance(error, str | dict) and bool(error))
        or body.get("isError") is True
        or body.get("is_error") is True
        or body.get("success") is False
        or body.get("ok") is False
        or (isinstance(state, str) and state.lower() in _FAILED)
        or (bool(body.get("errors")) and isinstance(body["errors"], list | dict) and not body.get("data"))
    )


def _kind(text: str, status: int | None) -> Outcome:
    head = text[:LONGEST_COMPLAINT]
    if status is None and _DENIED.search(head):  # a server's refusal has a status, a person's has none
        return "denied"
    if _NOT_RUN.search(head):
        return "not_executed"
    if status in (408, 504) or _TIMEOUT.search(head):
        return "timeout"
    return "error"
