"""Two protocols through their official SDKs: Anthropic's Messages, and chat completions of any OpenAI-like endpoint.

The SDKs send, wait and send again; what comes back is read here as untrusted JSON, field by field, so that an endpoint
that leaves something out or gets it wrong is recorded as what it is.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from invsim.client.prompt import Message
from invsim.errors import InputError
from invsim.live.answer import Answer, read_arguments, read_text
from invsim.live.arrival import bounded
from invsim.live.completion import Completion, ProviderError, Settings
from invsim.live.secrets import scrubbed

if TYPE_CHECKING:
    import httpx2

TOOL = "send_request"
TOOL_TEXT = "Send the request with these fields."
TOOL_FIELDS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}

LONGEST_WAIT = 120.0
"""Seconds that a server may have a client wait before it sends again; for longer the call is given up."""

LONGEST_QUOTE = 300
"""Characters of an error body that are quoted."""

LARGEST_COUNT = 10**12
"""Tokens of one call; more is no count of any, and the call counts as one without usage."""

NO_KEY = "no-key"
"""Sent to an endpoint of one's own where the environment holds no key."""


class Provider(Protocol):
    """Completes a conversation."""

    def complete(self, messages: Sequence[Message], *, sampling_seed: int | None, retries: int) -> Completion:
        """Return the completion; ``retries`` bounds how often the request may be sent again.

        Raises
        ------
        ProviderError
        """

    def body(self, messages: Sequence[Message], *, sampling_seed: int | None) -> dict[str, Any]:
        """Return what is sent."""

    def close(self) -> None:
        """Let go of the connections."""


class _Wire:
    """The HTTP client under an SDK, which counts what is sent and what is refused, and bounds what comes back."""

    def __init__(self, timeout: float) -> None:
        import httpx2

        self.timeout = timeout
        self.sent = self.refused = 0
        self._deadline = math.inf
        # No redirect is followed: a key goes to the host it is meant for.
        self.client = httpx2.Client(
            timeout=timeout,
            follow_redirects=False,
            event_hooks={"request": [self._sending], "response": [self._answering]},
        )

    def _sending(self, _: httpx2.Request) -> None:
        self.sent += 1
        self._deadline = time.monotonic() + self.timeout

    def _answering(self, response: httpx2.Response) -> None:
        # A status refuses a call. Anything else may be billed, even if the body never comes, or not to its end.
        self.refused += not response.is_success
        response.stream = bounded(response.stream, self._deadline)
        try:
            wait = float(response.headers.get("retry-after", "0"))
        except ValueError:  # a date, which both SDKs read themselves
            return
        if wait > LONGEST_WAIT:
            response.headers["x-should-retry"] = "false"

    def reset(self) -> None:
        self.sent = self.refused = 0


Send = Callable[[dict[str, Any], int], Any]
"""(body, retries) -> an SDK's raw response."""

Read = Callable[[dict[str, Any], Settings], dict[str, Any] | None]
"""(body of an answer, settings) -> fields of a ``Completion``."""


class _Sdk:
    """A protocol: how a body is built, sent through the SDK and read."""

    def __init__(self, settings: Settings, wire: _Wire, send: Send, read: Read, errors: Any) -> None:
        self.settings, self._wire, self._send, self._read, self._errors = settings, wire, send, read, errors

    def body(self, messages: Sequence[Message], *, sampling_seed: int | None) -> dict[str, Any]:
        """See ``Provider``."""
        build = anthropic_body if self.settings.provider == "anthropic" else openai_body
        return build(self.settings, messages, sampling_seed)

    def complete(self, messages: Sequence[Message], *, sampling_seed: int | None, retries: int) -> Completion:
        """See ``Provider``."""
        wire = self._wire
        wire.reset()
        started = time.time_ns()
        try:
            raw = self._send(self.body(messages, sampling_seed=sampling_seed), retries)
            content: bytes = raw.http_response.content
        except self._errors.APIStatusError as error:
            refusal = self._filtered(error, started)
            if refusal is None:
                raise self._failed("status", _status_text(error), error.status_code) from None
            return refusal
        except self._errors.APITimeoutError:
            raise self._failed("timeout", f"no answer within {self.settings.timeout:g} s") from None
        except self._errors.APIError as error:
            raise self._failed("connection", f"no connection ({type(error).__name__})") from None
        data = _object(content)
        found = None if data is None else self._read(data, self.settings)
        if data is None or found is None:
            raise self._failed("unreadable", f"the answer is no completion: {_quoted(content)}", raw.status_code)
        return Completion(
            **found,
            model_requested=self.settings.model,
            model=_text(data.get("model")),
            response_id=_text(data.get("id")),
            transport_retries=wire.sent - 1,
            unanswered=wire.sent - wire.refused - 1,
            t_start=started,
            t_end=time.time_ns(),
        )

    def close(self) -> None:
        """See ``Provider``."""
        self._wire.client.close()

    def _filtered(self, error: Any, started: int) -> Completion | None:
        """Return a refusal where a filter before the model declined the prompt, which some endpoints tell as a 400."""
        body = _dict(error.body)
        inner = _dict(body.get("error")) or body
        if error.status_code != 400 or inner.get("code") != "content_filter":
            return None
        wire = self._wire
        return Completion(
            text="", parse_status="invalid", reason="the answer is a refusal", refused=True,
            finish_reason="content_filter", model_requested=self.settings.model, transport_retries=wire.sent - 1,
            unanswered=wire.sent - wire.refused, t_start=started, t_end=time.time_ns(),
        )  # fmt: skip

    def _failed(self, kind: str, what: str, status_code: int | None = None) -> ProviderError:
        sent = max(self._wire.sent, 1)
        times = "" if sent == 1 else f" after {sent} sendings"
        message = f"the {self.settings.provider} endpoint gave no completion{times}: {what}"
        return ProviderError(message, kind, status_code, sent - 1, self._wire.sent - self._wire.refused)


def open_provider(settings: Settings) -> Provider:
    """Return the provider that the settings name, with its key from the environment.

    Raises
    ------
    InputError
        Without the extra ``live``, or without a key where the provider's own endpoint needs one.
    """
    sdk, key = _sdk(settings.provider), _key(settings)
    wire = _Wire(settings.timeout)
    common: dict[str, Any] = {"base_url": settings.base_url, "http_client": wire.client, "timeout": settings.timeout}
    if settings.provider == "anthropic":
        client = sdk.Anthropic(**key, **common)

        def send(body: dict[str, Any], retries: int) -> Any:
            return client.with_options(max_retries=retries).messages.with_raw_response.create(**body)

        return _Sdk(settings, wire, send, read_anthropic, sdk)
    client = sdk.OpenAI(**key, **common)

    def ask(body: dict[str, Any], retries: int) -> Any:
        return client.with_options(max_retries=retries).chat.completions.with_raw_response.create(**body)

    return _Sdk(settings, wire, ask, read_openai, sdk)


def _sdk(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"live runs need the package {name}: pip install 'invsim[live]'") from None


def _key(settings: Settings) -> dict[str, str]:
    """Return the key as the SDK takes it, so that it looks in no other place than the environment."""
    names = {"anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "openai": ("OPENAI_API_KEY",)}
    for name in names[settings.provider]:
        if value := os.environ.get(name, "").strip():
            return {"auth_token" if name == "ANTHROPIC_AUTH_TOKEN" else "api_key": value}
    if settings.base_url is not None:
        return {"api_key": NO_KEY}
    raise InputError(f"no key: set {names[settings.provider][0]} in the environment, or name a --base-url of your own")


# What is sent --------------------------------------------------------------------------------------------------------


def anthropic_body(settings: Settings, messages: Sequence[Message], sampling_seed: int | None) -> dict[str, Any]:
    """Return the body of a Messages call; the protocol knows no sampling seed."""
    body: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": settings.max_tokens,
        "system": "\n".join(each.content for each in messages if each.role == "system"),
        "messages": [each._asdict() for each in messages if each.role != "system"],
    }
    if settings.output == "tool":
        body["tools"] = [{"name": TOOL, "description": TOOL_TEXT, "input_schema": TOOL_FIELDS}]
        body["tool_choice"] = {"type": "tool", "name": TOOL}
    if settings.temperature is not None:
        body["extra_body"] = {"temperature": settings.temperature}
    return body


def openai_body(settings: Settings, messages: Sequence[Message], sampling_seed: int | None) -> dict[str, Any]:
    """Return the body of a chat completion."""
    # OpenAI's own endpoint has renamed the limit; the others know its first name.
    limit = "max_completion_tokens" if settings.base_url is None else "max_tokens"
    body: dict[str, Any] = {
        "model": settings.model,
        limit: settings.max_tokens,
        "messages": [each._asdict() for each in messages],
    }
    if settings.output == "tool":
        function = {"name": TOOL, "description": TOOL_TEXT, "parameters": TOOL_FIELDS}
        body["tools"] = [{"type": "function", "function": function}]
        body["tool_choice"] = {"type": "function", "function": {"name": TOOL}}
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if sampling_seed is not None:
        body["seed"] = sampling_seed
    return body


# What comes back -----------------------------------------------------------------------------------------------------


def read_anthropic(data: dict[str, Any], settings: Settings) -> dict[str, Any] | None:
    """Return what a message says as fields of a ``Completion``; None for what is no message."""
    content = data.get("content")
    if not isinstance(content, list):
        return None
    blocks = [each for each in content if isinstance(each, dict)]
    finish = _text(data.get("stop_reason"))
    calls = [each.get("input") for each in blocks if each.get("type") == "tool_use"]
    text = "".join(_text(each.get("text")) or "" for each in blocks if each.get("type") == "text")
    usage = _dict(data.get("usage"))
    fresh, read = _count(usage.get("input_tokens")), _count(usage.get("cache_read_input_tokens"))
    written = _count(usage.get("cache_creation_input_tokens"))
    cut = finish in {"max_tokens", "model_context_window_exceeded"}
    return {
        **_answered(settings, text, calls, cut=cut, refused=finish == "refusal"),
        "finish_reason": finish,
        # What was read from a cache or written to it stands beside the rest, not in it.
        "input_tokens": None if fresh is None else fresh + (read or 0) + (written or 0),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "output_tokens": _count(usage.get("output_tokens")),
        "reasoning_tokens": _count(_dict(usage.get("output_tokens_details")).get("thinking_tokens")),
    }


def read_openai(data: dict[str, Any], settings: Settings) -> dict[str, Any] | None:
    """Return what a chat completion says as fields of a ``Completion``; None for what is none."""
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return None
    finish = _text(choices[0].get("finish_reason"))
    listed = message.get("tool_calls")
    calls = [_dict(_dict(each).get("function")).get("arguments") for each in listed] if isinstance(listed, list) else []
    refused = finish == "content_filter" or bool(_text(message.get("refusal")))
    usage = _dict(data.get("usage"))
    details = _dict(usage.get("prompt_tokens_details"))
    text = _joined(message.get("content")) or _text(message.get("refusal")) or ""
    return {
        **_answered(settings, text, calls, cut=finish == "length", refused=refused),
        "finish_reason": finish,
        "input_tokens": _count(usage.get("prompt_tokens")),  # those from the cache are in it
        "cache_read_tokens": _count(details.get("cached_tokens")),
        "cache_write_tokens": _count(details.get("cache_write_tokens")),
        "output_tokens": _count(usage.get("completion_tokens")),
        "reasoning_tokens": _count(_dict(usage.get("completion_tokens_details")).get("reasoning_tokens")),
    }


def _answered(settings: Settings, text: str, calls: list[Any], *, cut: bool, refused: bool) -> dict[str, Any]:
    if refused:
        answer = Answer(None, "invalid", "the answer is a refusal")
    elif settings.output == "json" and not calls:
        answer = read_text(text, cut=cut)
    elif len(calls) == 1:
        answer = read_arguments(calls[0], cut=cut)
        text = _text(calls[0]) or "" if isinstance(calls[0], str) else json.dumps(calls[0], separators=(",", ":"))
    else:
        how_many = "no tool was called" if not calls else "more than one tool was called"
        answer = Answer(None, "truncated" if cut and not calls else "invalid", how_many)
    return {
        "text": text, "fields": answer.fields, "parse_status": answer.status, "reason": answer.reason,
        "refused": refused,
    }  # fmt: skip


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        data = scrubbed(json.loads(content))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _status_text(error: Any) -> str:
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else body
    said = inner.get("message", inner) if isinstance(inner, dict) else inner
    return f"status {error.status_code}: {_quoted(said)}"


def _quoted(said: object) -> str:
    if isinstance(said, bytes):
        said = said.decode("utf-8", "replace")
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False, default=str)
    text = " ".join(str(scrubbed(text)).split())
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}..."


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    """Return a text, with half a surrogate pair written as an escape: it could not be kept or sent as it is."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else None


def _joined(content: object) -> str:
    """Return the text of a message, which some endpoints give in parts."""
    if isinstance(content, list):
        return "".join(_text(_dict(each).get("text")) or "" for each in content)
    return _text(content) or ""


def _count(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LARGEST_COUNT else None
