"""The journal: what was paid is answered from it, a torn line is located, and a kill loses nothing."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from invsim.client.prompt import Message
from invsim.errors import InputError
from invsim.live.budget import Budget, Caps
from invsim.live.completion import Completion, Settings
from invsim.live.journal import Journal, Line, Where, key_of, line_of

SETTINGS = Settings(provider="openai", model="m", base_url="http://127.0.0.1:1/v1")
WHERE = Where("A0", 0, 3, 1)
MESSAGES = [Message("user", "hello")]
SUPPORT = Path(__file__).parents[1] / "support" / "scripted_model.py"


def done(key: str, tokens: int = 10) -> Line:
    found = Completion(text="{}", fields={}, model_requested="m", input_tokens=tokens, output_tokens=1)
    return line_of("done", key, WHERE, completion=found, most_input=99, most_output=1)


def test_a_key_depends_on_all_that_an_answer_depends_on_and_on_nothing_else() -> None:
    def key(where: Where = WHERE, messages: list[Message] = MESSAGES, seed: int | None = 1, **rest: object) -> str:
        chosen = Settings(**{"provider": "openai", "model": "m", **rest})  # type: ignore[arg-type]
        return key_of(chosen, where, messages, seed)

    others = [
        key(provider="anthropic"), key(model="n"), key(base_url="http://x/v1"), key(base_url="http://y/v1"),
        key(temperature=0.0), key(max_tokens=5), key(output="tool"), key(seed=2), key(WHERE._replace(stream=1)),
        key(WHERE._replace(arm="A1")), key(WHERE._replace(episode=4)), key(WHERE._replace(attempt=2)),
        key(messages=[Message("user", "bye")]), key(messages=[Message("system", "hello")]),
    ]  # fmt: skip
    assert len({key(), *others}) == 1 + len(others)
    assert key() == key(timeout=1.0, max_retries=9)


def test_what_is_written_is_read_again_and_one_process_has_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "calls.jsonl"
    journal = Journal(path)
    journal.append(line_of("sent", "k", WHERE))
    assert journal.get("k") is None
    journal.append(done("k"))
    with pytest.raises(InputError, match="in use by another run"):
        Journal(path)
    journal.close()
    again = Journal(path)
    assert again.get("k") == done("k").completion
    assert again.bad == []
    again.close()


@pytest.mark.parametrize("kept", range(1, 40, 6))
def test_a_torn_last_line_is_located_and_cut_off_and_the_rest_stays(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "calls.jsonl"
    journal = Journal(path)
    for key in "ab":
        journal.append(done(key))
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept])
    journal = Journal(path)
    assert [str(each) for each in journal.bad] == [f"line 3: torn after {kept} bytes; cut off"]
    journal.append(done("c"))
    journal.close()
    journal = Journal(path)
    assert [line.key for line in journal.lines] == ["a", "b", "c"]
    assert journal.bad == []
    journal.close()


def test_a_bad_line_is_located_and_the_good_ones_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    journal = Journal(path)
    journal.append(done("a"))
    journal.close()
    path.write_bytes(b'{"kind": 1}\n\xff\n' + path.read_bytes())
    journal = Journal(path)
    assert [each.number for each in journal.bad] == [1, 2]
    assert journal.get("a") is not None
    journal.close()


def test_a_call_without_an_end_counts_as_spent_in_full(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "calls.jsonl")
    sent = line_of("sent", "a", WHERE, most_input=99, most_output=1)
    failed = line_of("failed", "b", WHERE, most_input=99, most_output=1, sendings=3, unanswered=2)
    for line in (sent, sent, done("a"), failed):
        journal.append(line)
    budget = Budget(Caps(), None)
    journal.charge(budget)
    assert (budget.calls, budget.tokens) == (5, 100 + 11 + 200)
    journal.append(line_of("sent", "c", WHERE, most_input=99, most_output=1))
    budget = Budget(Caps(), None)
    journal.charge(budget)
    assert (budget.calls, budget.tokens) == (6, 100 + 11 + 200 + 100)
    journal.close()


# Kill -9 -------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9")
def test_a_run_that_is_killed_again_and_again_pays_for_nothing_twice_and_loses_nothing(tmp_path: Path) -> None:
    delivered, out = tmp_path / "delivered", tmp_path / "out"
    delivered.touch()
    environment = {**os.environ, "OPENAI_API_KEY": "sk-test-0123456789"}
    server = subprocess.Popen(
        [sys.executable, str(SUPPORT), str(free_port()), str(delivered), "0.05"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        command = [
            sys.executable, "-m", "invsim", "live", "payments", "--provider", "openai", "--model", "m",
            "--base-url", url, "--episodes", "8", "--out", str(out),
        ]  # fmt: skip
        journal, chance, kills = out / "calls.jsonl", random.Random(4), 0
        for wanted in (2, 8):
            run = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while run.poll() is None and answers(journal) < wanted:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.05))
            run.send_signal(signal.SIGKILL)
            kills += run.wait() == -signal.SIGKILL
        assert kills == 2
        kept = answers(journal)
        assert 8 <= kept < 24
        whole = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert whole.returncode == 0, whole.stderr
        first = (out / "trace.jsonl").read_bytes()
        again = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, check=False)
        summary = json.loads(again.stdout)
        assert summary["calls_new"] == 0
        assert summary["calls_recalled"] == answers(journal) == len(first.splitlines())
        assert (out / "trace.jsonl").read_bytes() == first
        # Every answer that the server delivered is in the journal, once, but for what was under way at a kill.
        keys = [json.loads(line)["key"] for line in whole_lines(journal) if b'"kind":"done"' in line]
        assert len(keys) == len(set(keys))
        lost = len(delivered.read_text(encoding="utf-8").splitlines()) - len(keys)
        assert 0 <= lost <= spent_in_vain(journal) <= kills
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def answers(journal: Path) -> int:
    return sum(b'"kind":"done"' in line for line in whole_lines(journal))


def spent_in_vain(journal: Path) -> int:
    lines = [json.loads(line) for line in whole_lines(journal)]
    return sum(each["kind"] == "sent" for each in lines) - sum(each["kind"] == "done" for each in lines)


def whole_lines(journal: Path) -> list[bytes]:
    return (
        [line for line in journal.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        if journal.exists()
        else []
    )
