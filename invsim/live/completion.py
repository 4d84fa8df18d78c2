"""One completion of a model, in the same terms whoever served it."""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from invsim.errors import InputError, InvsimError, UnknownNameError
from invsim.traces.schema import ParseStatus

ProviderName: TypeAlias = Literal["anthropic", "openai"]
Output: TypeAlias = Literal["json", "tool"]
PROVIDERS: tuple[ProviderName, ...] = ("anthropic", "openai")
OUTPUTS: tuple[Output, ...] = ("json", "tool")

LONGEST_TIMEOUT = 86_400.0
"""Seconds; longer ones are more than the clocks of some systems hold."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of whom, and how.

    Parameters
    ----------
    provider : "anthropic" or "openai"
        Anthropic's Messages, or any endpoint that speaks OpenAI's chat completions.
    model : str
    base_url : str or None
        Another endpoint than the provider's own.
    output : "json" or "tool"
        Whether the request is written as text or as the arguments of a forced tool call.
    max_tokens : int
        Of one answer, 1 or more.
    temperature : float or None
        None sends none: some models take none.
    sampling_seed : int or None
        Of stream 0, for an endpoint that takes one; stream s gets ``sampling_seed + s``.
    timeout : float
        Seconds for one sending, above 0 and at most a day.
    max_retries : int
        Times that the SDK may send again after a 429, a 5xx, a timeout or a lost connection.
    """

    provider: ProviderName
    model: str
    base_url: str | None = None
    output: Output = "json"
    max_tokens: int = 256
    temperature: float | None = None
    sampling_seed: int | None = None
    timeout: float = 60.0
    max_retries: int = 4

    def __post_init__(self) -> None:
        if self.provider not in PROVIDERS:
            raise UnknownNameError("provider", self.provider, PROVIDERS)
        if self.output not in OUTPUTS:
            raise UnknownNameError("output", self.output, OUTPUTS)
        if not self.model:
            raise InputError("a model must be named")
        for name, value, least in (("max_tokens", self.max_tokens, 1), ("max_retries", self.max_retries, 0)):
            if value < least:
                raise InputError(f"{name} must be {least} or more", value=value)
        if not 0 < self.timeout <= LONGEST_TIMEOUT:
            what = f"timeout must be above 0 seconds, and at most {LONGEST_TIMEOUT:g}"
            raise InputError(what, value=self.timeout)
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise InputError("temperature must be a number from 0 to 2", value=self.temperature)
        if self.base_url is not None:
            _check_url(self.base_url)

    @property
    def endpoint(self) -> str:
        """A name for the endpoint that tells endpoints apart, and tells nobody where one is."""
        return "default" if self.base_url is None else hashlib.sha256(self.base_url.encode()).hexdigest()[:12]

    def shaping(self) -> dict[str, Any]:
        """Return what an answer depends on, and so what the journal files it under."""
        return {
            "provider": self.provider,
            "endpoint": self.endpoint,
            "model": self.model,
            "output": self.output,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "sampling_seed": self.sampling_seed,
        }


def _check_url(url: str) -> None:
    """Refuse what could not be called, or would carry a secret; it may hold one, so it is not echoed."""
    if not url.startswith(("http://", "https://")):
        raise InputError("a base URL begins with http:// or https://", where="--base-url")
    try:
        parts = urlsplit(url)
        named, _ = parts.hostname, parts.port  # the port is read only when it is asked for
    except ValueError:
        named = None
    if not named or not url.isascii() or not url.isprintable() or " " in url or "%" in parts.netloc:
        raise InputError("a base URL is http://HOST:PORT/PATH, or https:// so", where="--base-url")
    if "@" in parts.netloc:
        raise InputError("a base URL holds no password: the key comes from the environment", where="--base-url")


class Completion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model answered.

    Parameters
    ----------
    text : str
        As written; of a tool call its arguments as JSON.
    fields : dict or None
        The request in it; None where there is none, and ``reason`` says why.
    parse_status : str
    reason : str
    refused : bool
        Whether the model, or a filter before it, declined to answer.
    finish_reason : str or None
        In the provider's word.
    model_requested, model : str
        Asked for, and served as the answer says it; None where it does not.
    response_id : str or None
    input_tokens : int or None
        All, those read from or written to a cache included, each once. None where no usage was reported.
    cache_read_tokens, cache_write_tokens : int or None
        Parts of ``input_tokens``.
    output_tokens, reasoning_tokens : int or None
    transport_retries : int
        Times that the request was sent again.
    unanswered : int
        Sendings that no status refused and no completion came back from, or a part of one; a provider may bill them.
    t_start, t_end : int
        UTC, in nanoseconds since 1970.
    """

    text: str
    fields: dict[str, str | int | float | bool] | None = None
    parse_status: ParseStatus = "ok"
    reason: str = ""
    refused: bool = False
    finish_reason: str | None = None
    model_requested: str
    model: str | None = None
    response_id: str | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    transport_retries: int = 0
    unanswered: int = 0
    t_start: int = 0
    t_end: int = 0

    @property
    def served(self) -> str:
        """How the served model's name relates to the requested one.

        "same"; "snapshot" for a dated version of the requested name; "other"; or "unknown" where none was told.
        """
        if self.model is None:
            return "unknown"
        if self.model == self.model_requested:
            return "same"
        rest = self.model.removeprefix(self.model_requested)
        dated = rest != self.model and rest.startswith(("-", "@")) and rest[1:].replace("-", "").isdigit()
        return "snapshot" if dated else "other"


class ProviderError(InvsimError):
    """A call that came to nothing for reasons that the model has no part in: it is no attempt of the planner.

    Parameters
    ----------
    message : str
    kind : str
        "timeout", "connection", "status" or "unreadable".
    status_code : int or None
    transport_retries, unanswered : int
        See ``Completion``.
    """

    def __init__(
        self,
        message: str,
        kind: str = "status",
        status_code: int | None = None,
        transport_retries: int = 0,
        unanswered: int = 0,
    ) -> None:
        super().__init__(message, kind, status_code, transport_retries, unanswered)
        self.message, self.kind, self.status_code = message, kind, status_code
        self.transport_retries, self.unanswered = transport_retries, unanswered

    def __str__(self) -> str:
        from invsim.errors import one_line

        return one_line(self.message)
