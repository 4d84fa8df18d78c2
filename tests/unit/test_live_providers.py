"""Both protocols over a real socket: whatever an endpoint does is recorded as what it is."""

import json
import sys
import time
from contextlib import closing
from typing import Any

import msgspec
import pytest
from scripted_model import Reply, serving

from invsim.client.prompt import Consumption, prompt
from invsim.errors import InputError
from invsim.live.completion import Completion, ProviderError, Settings
from invsim.live.providers import NO_KEY, open_provider
from invsim.world.wire import Request

KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
FIELDS = {"plan": "p", "amount": 5.0}
MESSAGES = prompt(Request(FIELDS), (), Consumption.L3)
SOON = {"retry-after-ms": "10"}


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS.values(), "ANTHROPIC_AUTH_TOKEN", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["anthropic", "openai"])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(provider: str, *replies: Any, retries: int = 2, **settings: Any) -> tuple[Completion, list[Any]]:
    """The completion, and what the server was asked, when it answers with each reply in turn."""
    with serving(lambda asked: replies[min(asked.number, len(replies) - 1)]) as server:
        chosen = Settings(provider=provider, model="m-1", base_url=server.base_url(provider), **settings)
        try:
            with closing(open_provider(chosen)) as opened:
                return opened.complete(MESSAGES, sampling_seed=7, retries=retries), server.log
        except ProviderError as error:
            error.log = server.log  # type: ignore[attr-defined]
            raise


def good(**rest: Any) -> Any:
    return Reply(json.dumps(FIELDS), **rest)


def test_success(provider: str) -> None:
    before = time.time_ns()
    found, (asked,) = ask(provider, good(), temperature=0.0)
    assert (found.fields, found.parse_status, found.refused) == (FIELDS, "ok", False)
    assert (found.model_requested, found.model, found.served) == ("m-1", "m-1", "same")
    assert (found.input_tokens, found.output_tokens, found.cache_read_tokens) == (100, 10, 0)
    assert (found.transport_retries, found.unanswered) == (0, 0)
    assert before <= found.t_start < found.t_end <= time.time_ns()
    assert found.finish_reason == {"anthropic": "end_turn", "openai": "stop"}[provider]
    assert asked.messages == [each._asdict() for each in MESSAGES]
    assert (asked.body["model"], asked.body["max_tokens"], asked.body["temperature"]) == ("m-1", 256, 0.0)
    assert asked.body.get("seed") == {"anthropic": None, "openai": 7}[provider]


def test_an_endpoint_that_takes_no_temperature_is_sent_none(provider: str) -> None:
    _, (asked,) = ask(provider, good())
    assert "temperature" not in asked.body


def test_a_tool_call(provider: str) -> None:
    found, (asked,) = ask(provider, Reply(tool=FIELDS), output="tool")
    assert (found.fields, json.loads(found.text)) == (FIELDS, FIELDS)
    assert asked.body["tool_choice"]
    found, _ = ask(provider, good(), output="tool")
    assert (found.fields, found.parse_status, found.reason) == (None, "invalid", "no tool was called")
    found, _ = ask(provider, Reply(tool='"{\\"plan\\": \\"p\\"}"'), output="tool")
    assert (found.fields, found.parse_status) == (None, "double_encoded")


def test_a_refusal_is_one_and_no_request(provider: str) -> None:
    for finish in ("refusal", "content_filter"):
        found, _ = ask(provider, Reply('{"plan": "p"}', finish=finish))
        assert (found.fields, found.refused, found.reason) == (None, True, "the answer is a refusal")


def test_malformed_json_and_a_cut_answer(provider: str) -> None:
    found, _ = ask(provider, Reply("Here you are: {}"))
    assert (found.fields, found.parse_status, found.refused) == (None, "invalid", False)
    found, _ = ask(provider, Reply('{"plan": "p', finish="length"))
    assert (found.fields, found.parse_status) == (None, "truncated")
    assert found.finish_reason == {"anthropic": "max_tokens", "openai": "length"}[provider]


def test_a_429_and_a_500_are_waited_for_and_counted(provider: str) -> None:
    busy, broken = Reply("slow down", status=429, headers=SOON), Reply("oh", status=500, headers=SOON)
    found, log = ask(provider, busy, broken, good())
    assert (found.fields, found.transport_retries, found.unanswered, len(log)) == (FIELDS, 2, 0, 3)


def test_what_the_retries_do_not_mend_is_no_attempt(provider: str) -> None:
    with pytest.raises(ProviderError, match="after 3 sendings: status 429: slow down") as caught:
        ask(provider, Reply("slow down", status=429, headers=SOON))
    assert (caught.value.kind, caught.value.status_code, caught.value.transport_retries) == ("status", 429, 2)
    with pytest.raises(ProviderError, match="status 401: who are you") as caught:
        ask(provider, Reply("who are you", status=401))
    assert len(caught.value.log) == 1  # type: ignore[attr-defined]


def test_a_server_may_not_have_a_client_wait_for_hours(provider: str) -> None:
    with pytest.raises(ProviderError, match="status 429"):
        ask(provider, Reply("come back tomorrow", status=429, headers={"retry-after": "86400"}))


def test_a_timeout_is_sent_again_and_known_to_be_unanswered(provider: str) -> None:
    found, log = ask(provider, good(wait=0.8), good(), timeout=0.3)
    assert (found.fields, found.transport_retries, found.unanswered, len(log)) == (FIELDS, 1, 1, 2)
    with pytest.raises(ProviderError, match=r"no answer within 0\.1 s") as caught:
        ask(provider, good(wait=0.4), timeout=0.1, retries=0)
    assert (caught.value.kind, caught.value.unanswered) == ("timeout", 1)


def test_a_lost_connection(provider: str) -> None:
    with pytest.raises(ProviderError, match="no connection") as caught:
        ask(provider, Reply(hang_up=True), retries=0)
    assert (caught.value.kind, caught.value.unanswered) == ("connection", 1)


def test_an_answer_that_ends_halfway_may_have_been_billed(provider: str) -> None:
    found, log = ask(provider, good(cut=True), good())
    assert (found.fields, found.transport_retries, found.unanswered, len(log)) == (FIELDS, 1, 1, 2)
    with pytest.raises(ProviderError, match="no connection") as caught:
        ask(provider, good(cut=True), retries=1)
    assert (caught.value.kind, caught.value.unanswered) == ("connection", 2)


def test_a_server_that_drips_its_answer_is_not_waited_for(provider: str) -> None:
    started = time.monotonic()
    with pytest.raises(ProviderError, match=r"no answer within 0\.3 s") as caught:
        ask(provider, good(drip=0.05), timeout=0.3, retries=0)
    assert (caught.value.kind, caught.value.unanswered) == ("timeout", 1)
    assert time.monotonic() - started < 3


def test_a_body_that_is_larger_than_any_completion_is_cut(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invsim.live.arrival.LARGEST_BODY", 100_000)
    found, _ = ask(provider, Reply("x" * 50_000))
    assert len(found.text) == 50_000
    with pytest.raises(ProviderError, match="the answer is no completion") as caught:
        ask(provider, Reply("x" * 100_000))
    assert (caught.value.kind, caught.value.unanswered, len(caught.value.log)) == ("unreadable", 1, 1)  # type: ignore[attr-defined]


def test_half_a_surrogate_pair_is_written_as_an_escape(provider: str) -> None:
    for reply in (Reply("\ud800", model="m\ud800"), Reply(tool='{"plan": "\ud800"}', model="m\ud800")):
        found, _ = ask(provider, reply, output="json" if reply.tool is None else "tool")
        assert (found.fields, found.parse_status, found.model) == (None, "invalid", "m\\ud800")
        assert "\\ud800" in found.text
        assert msgspec.json.decode(msgspec.json.encode(found), type=Completion) == found
    for said in ("\ud800", {"x": "\ud800"}):
        with pytest.raises(ProviderError, match=r"status 400: .*\\ud800") as caught:
            ask(provider, Reply(raw=json.dumps({"error": {"message": said}}).encode(), status=400))
        assert str(caught.value).encode()


def test_a_body_nested_too_deeply_is_no_completion(provider: str) -> None:
    for depth in (400, 900, 100_000):
        for status, kind in ((200, "unreadable"), (400, "status")):
            with pytest.raises(ProviderError) as caught:
                ask(provider, Reply(raw=b'{"a":' * depth + b"1" + b"}" * depth, status=status))
            assert caught.value.kind == kind


def test_a_count_of_tokens_that_none_can_be_is_unknown(provider: str) -> None:
    body = json.dumps(FIELDS)
    for many in (10**30, 10**400, -1, True, 1.5, "7"):
        usage = {"input_tokens": many, "output_tokens": many, "prompt_tokens": many, "completion_tokens": many}
        message = {"content": [{"type": "text", "text": body}], "choices": [{"message": {"content": body}}]}
        found, _ = ask(provider, Reply(raw=json.dumps(message | {"usage": usage}).encode()))
        assert (found.fields, found.input_tokens, found.output_tokens) == (FIELDS, None, None)


def test_what_is_no_completion_is_said_to_be_none(provider: str) -> None:
    for raw in (b"<html>", b"[]", b'{"choices": [], "content": "x"}', b"\xff"):
        with pytest.raises(ProviderError, match="the answer is no completion") as caught:
            ask(provider, Reply(raw=raw))
        assert (caught.value.kind, caught.value.unanswered) == ("unreadable", 1)


@pytest.mark.parametrize(
    ("served", "how"),
    [("m-1-20260101", "snapshot"), ("m-1-2026-01-01", "snapshot"), ("m-1-mini", "other"), ("m-2", "other")],
)
def test_another_model_than_was_asked_for_is_recorded(provider: str, served: str, how: str) -> None:
    found, _ = ask(provider, good(model=served))
    assert (found.model, found.served) == (served, how)


def test_usage_that_is_missing_is_unknown_and_cached_tokens_count_once(provider: str) -> None:
    found, _ = ask(provider, good(usage=False))
    assert (found.input_tokens, found.output_tokens, found.cache_read_tokens) == (None, None, None)
    found, _ = ask(provider, good(cached=60))
    assert (found.input_tokens, found.cache_read_tokens) == (100, 60)


def test_a_key_is_needed_for_the_providers_own_endpoint_only(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=f"no key: set {KEYS[provider]}"):
        open_provider(Settings(provider=provider, model="m"))  # type: ignore[arg-type]
    for key in (NO_KEY, "sk-of-my-own"):
        if key is not NO_KEY:
            monkeypatch.setenv(KEYS[provider], key)
        _, (asked,) = ask(provider, good())
        assert {name.lower(): value for name, value in asked.headers.items()}["authorization"] == f"Bearer {key}"


def test_without_the_extra_it_says_what_to_install(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, provider, None)
    with pytest.raises(InputError, match=rf"need the package {provider}: pip install 'invsim\[live\]'"):
        open_provider(Settings(provider=provider, model="m", base_url="http://127.0.0.1:1"))  # type: ignore[arg-type]


def test_settings_are_checked_at_the_border() -> None:
    for wrong in (
        {"provider": "other"}, {"model": ""}, {"max_tokens": 0}, {"timeout": 0.0}, {"max_retries": -1},
        {"temperature": 3.0}, {"base_url": "ftp://x"}, {"output": "xml"}, {"timeout": float("inf")},
        *({"base_url": f"http://{each}"} for each in ("", "h:x/", "h:99999/", "exa%mple", "[::1", "a b", ":80")),
    ):  # fmt: skip
        with pytest.raises(Exception, match=r"."):
            Settings(**{"provider": "openai", "model": "m", **wrong})


def test_a_base_url_holds_no_password_and_is_not_echoed() -> None:
    with pytest.raises(InputError, match="holds no password") as caught:
        Settings(provider="openai", model="m", base_url="https://me:hunter22@127.0.0.1/v1")
    assert "hunter22" not in str(caught.value)
    for fine in ("http://[::1]:80/v1", "https://h", "http://127.0.0.1:8000/v1"):
        assert Settings(provider="openai", model="m", base_url=fine).base_url == fine
