"""Token counts as providers write them, in one meaning: the input is all of it, what came from a cache included."""

from __future__ import annotations

from typing import NamedTuple

from invsim.traces.readers.fields import LARGEST, Fields


class Usage(NamedTuple):
    """Tokens of one turn; see ``Call``. None is unknown."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None


UNKNOWN = Usage()


def chat_usage(usage: Fields | None) -> Usage:
    """Return the usage of a chat message, by the spelling of its provider.

    ``prompt_tokens`` (OpenAI, and what imitates it) and ``input_tokens`` with ``input_tokens_details`` (OpenAI's
    responses) include what was cached; ``input_tokens`` alone is Anthropic's, which does not.
    """
    if usage is None:
        return UNKNOWN
    if "prompt_tokens" in usage or "input_tokens_details" in usage:
        return _openai(usage)
    read, write = usage.count("cache_read_input_tokens"), usage.count("cache_creation_input_tokens")
    return Usage(_sum(usage.count("input_tokens"), read, write), read, write, usage.count("output_tokens"))


def codex_usage(usage: Fields) -> Usage:
    """Return the usage of a response as a session of Codex notes it; what came from the cache is included."""
    return Usage(
        usage.count("input_tokens"),
        usage.count("cached_input_tokens"),
        usage.count("cache_write_input_tokens"),
        usage.count("output_tokens"),
        usage.count("reasoning_output_tokens"),
    )


def inspect_usage(usage: Fields | None, *, excludes_cache: bool) -> Usage:
    """Return the usage of an Inspect model event.

    Parameters
    ----------
    usage : Fields or None
    excludes_cache : bool
        Whether the version that wrote the log leaves what was cached out of ``input_tokens`` (since 0.3.184). The
        total decides where it can: older versions left it out for some providers too.
    """
    if usage is None:
        return UNKNOWN
    fresh, output, total = (usage.count(f"{each}_tokens") for each in ("input", "output", "total"))
    read, write = usage.count("input_tokens_cache_read"), usage.count("input_tokens_cache_write")
    cached = (read or 0) + (write or 0)
    if fresh is not None and output is not None and total and cached:
        if fresh + output + cached == total:
            excludes_cache = True
        elif fresh + output == total:
            excludes_cache = False
    whole = _sum(fresh, read, write) if excludes_cache else fresh
    return Usage(whole, read, write, output, usage.count("reasoning_tokens"))


def span_usage(attributes: Fields) -> Usage:
    """Return the usage of an OpenTelemetry GenAI span, or of one with OpenInference names.

    The conventions include in the input what was cached; where more is cached than that, it was left out.
    """
    read = attributes.count("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read")
    write = attributes.count(
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
        "llm.token_count.prompt_details.cache_write",
    )
    whole = attributes.count("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
    if whole is not None and (read or 0) + (write or 0) > whole:
        whole = _sum(whole, read, write)
    return Usage(
        whole,
        read,
        write,
        attributes.count("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
        attributes.count("gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"),
    )


def _openai(usage: Fields) -> Usage:
    inputs = usage.table("prompt_tokens_details") or usage.table("input_tokens_details")
    outputs = usage.table("completion_tokens_details") or usage.table("output_tokens_details")
    return Usage(
        usage.count("prompt_tokens", "input_tokens"),
        inputs.count("cached_tokens") if inputs else None,
        inputs.count("cache_creation_tokens", "cache_write_tokens") if inputs else None,
        usage.count("completion_tokens", "output_tokens"),
        outputs.count("reasoning_tokens") if outputs else None,
    )


def _sum(whole: int | None, *parts: int | None) -> int | None:
    if whole is None:
        return None
    total = whole + sum(part or 0 for part in parts)
    return total if total <= LARGEST else None
