"""Hard caps on calls, tokens and money: the worst case of a call is set aside before it is sent."""

from __future__ import annotations

import fnmatch
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec

from invsim.errors import InputError, InvsimError
from invsim.live.completion import Completion
from invsim.located import Source, decode

MILLION = 1e6

PER_MESSAGE = 16
"""Tokens that a message may cost beyond its text: role and separators."""

TOOL_PREAMBLE = 1024
"""Tokens that a provider may put before a prompt that names a tool."""


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model's tokens cost, in dollars for a million.

    Parameters
    ----------
    model : str
        A name, with * for anything.
    input, cached_input, output : float
    cache_write : float or None
        Of input that is written to a cache; None for no more than other input.
    date, source : str
        When the price held, and where it is from.
    """

    model: str
    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    date: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for each in (self.input, self.output, self.cached_input, self.cache_write):
            if each is not None and not 0 <= each < math.inf:
                raise InputError("a price is 0 or more, in dollars for a million tokens", value=each)

    def worst(self, input_tokens: int, output_tokens: int) -> float:
        """Return dollars if no token were read from a cache."""
        return (input_tokens * max(self.input, self.cache_write or 0.0) + output_tokens * self.output) / MILLION

    def cost(self, completion: Completion) -> float | None:
        """Return dollars of a completion, each cached token once; None without usage."""
        total, output = completion.input_tokens, completion.output_tokens
        if total is None or output is None:
            return None
        read, written = completion.cache_read_tokens or 0, completion.cache_write_tokens or 0
        fresh = max(total - read - written, 0)
        cached = self.input if self.cached_input is None else self.cached_input
        writing = self.input if self.cache_write is None else self.cache_write
        return (fresh * self.input + read * cached + written * writing + output * self.output) / MILLION


class _PriceFile(msgspec.Struct, forbid_unknown_fields=True):
    price: list[Price]


def price_of(model: str) -> Price | None:
    """Return the illustrative price of a model; None where the table has none."""
    text = resources.files("invsim.data").joinpath("prices.toml").read_text(encoding="utf-8")
    table = decode(Source("prices.toml", text), _PriceFile).price
    return next((each for each in table if fnmatch.fnmatchcase(model, each.model)), None)


@dataclass(frozen=True)
class Caps:
    """The most that may be spent, over a folder and all its runs; None for no cap.

    Parameters
    ----------
    calls : int or None
        Sendings: a call that is sent again counts again, whatever came of it.
    tokens : int or None
        Input and output together.
    cost : float or None
        Dollars.
    """

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("--max-calls", self.calls), ("--max-tokens", self.tokens), ("--max-cost", self.cost)):
            if value is not None and not 0 <= value < math.inf:
                raise InputError("a cap is 0 or more", where=name, value=value)


@dataclass(frozen=True)
class Spent:
    """Calls, those sent again included, tokens, and dollars (None where the price is unknown)."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0


class CapReachedError(InvsimError):
    """The next call could exceed a cap, so it is not made."""


class Budget:
    """What has been spent, and whether the next call fits.

    Parameters
    ----------
    caps : Caps
    price : Price or None

    Raises
    ------
    InputError
        For a cap on money without a price to count it in.
    """

    def __init__(self, caps: Caps, price: Price | None) -> None:
        if caps.cost is not None and price is None:
            what = "there is no price for this model to count money in; give --price-in and --price-out"
            raise InputError(what, where="--max-cost")
        self.caps, self.price = caps, price
        self.calls, self.tokens, self.cost = 0, 0, 0.0

    @property
    def spent(self) -> Spent:
        """All so far."""
        return Spent(self.calls, self.tokens, self.cost)

    def reserve(self, input_tokens: int, output_tokens: int, *, retries: int) -> int:
        """Return how often the call may be sent again so that even then no cap is exceeded, at most ``retries``.

        Every sending may be billed in full, those that nothing comes back from among them.

        Raises
        ------
        CapReachedError
            If not even one sending fits.
        """
        caps, worst = self.caps, input_tokens + output_tokens
        sendings = retries + 1
        if caps.calls is not None:
            sendings = min(sendings, caps.calls - self.calls)
            if sendings < 1:
                raise CapReachedError(f"the cap of {caps.calls} calls is reached; to go on, give a larger --max-calls")
        if caps.tokens is not None:
            sendings = min(sendings, (caps.tokens - self.tokens) // worst)
            if sendings < 1:
                left = f"{self.tokens} spent, and the next call may take {worst}"
                raise CapReachedError(f"the cap of {caps.tokens} tokens: {left}; to go on, give a larger --max-tokens")
        if caps.cost is not None and self.price is not None:
            each = self.price.worst(input_tokens, output_tokens)
            if each > 0:
                sendings = min(sendings, math.floor((caps.cost - self.cost) / each))
            if sendings < 1:
                left = f"${self.cost:.6f} spent, and the next call may cost ${each:.6f}"
                raise CapReachedError(f"the cap of ${caps.cost:g}: {left}; to go on, give a larger --max-cost")
        return sendings - 1

    def settle(self, completion: Completion, input_tokens: int, output_tokens: int) -> None:
        """Count a completion: as billed, or at its worst where it reports no usage."""
        self.failed(completion.transport_retries, completion.unanswered, input_tokens, output_tokens)
        self.calls += 1
        if completion.input_tokens is None or completion.output_tokens is None:
            self._worst(1, input_tokens, output_tokens)
            return
        self.tokens += completion.input_tokens + completion.output_tokens
        if self.price is not None:
            self.cost += self.price.cost(completion) or 0.0

    def failed(self, sendings: int, unanswered: int, input_tokens: int, output_tokens: int) -> None:
        """Count sendings that came to nothing; those that may be billed all the same, at their worst."""
        self.calls += sendings
        self._worst(unanswered, input_tokens, output_tokens)

    def lost(self, input_tokens: int, output_tokens: int) -> None:
        """Count a call whose answer was lost on the way."""
        self.calls += 1
        self._worst(1, input_tokens, output_tokens)

    def _worst(self, sendings: int, input_tokens: int, output_tokens: int) -> None:
        self.tokens += sendings * (input_tokens + output_tokens)
        if self.price is not None:
            self.cost += sendings * self.price.worst(input_tokens, output_tokens)


def most_input_tokens(body: Mapping[str, Any]) -> int:
    """Return a bound on the input tokens of a body: no token is shorter than a byte of text."""
    size = len(json.dumps([body.get(name) for name in ("system", "messages", "tools")], ensure_ascii=False).encode())
    messages = len(body["messages"]) + 1
    return size + PER_MESSAGE * messages + (TOOL_PREAMBLE if "tools" in body else 0)
