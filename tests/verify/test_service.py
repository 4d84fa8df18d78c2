"""The service under load and under fuzzing, and every shipped scenario against it, arm by arm.

Nothing here is left to chance but the order in which the system runs two processes: every check is of something that
must never happen, so its false-alarm rate is zero.
"""

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from invsim.client.planners import Behaviour, ProbabilisticModel, RetryLaw
from invsim.experiment import run
from invsim.service.remote import Remote
from invsim.sim import scenario as scenarios
from invsim.sim.plan import compile_plan
from invsim.world import Level

CLIENTS = 1000
RELOADS = 6
TOKEN = "a-token-for-checks"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
SPAWN = [sys.executable, "-m", "invsim", "serve"]
NOISY = ProbabilisticModel(
    "noisy", Behaviour(0.8, 0.4, 0.7, 0.5, 0.3, RetryLaw.geometric(0.6), RetryLaw.geometric(0.5))
)


@contextmanager
def serving(*args: str) -> Iterator[str]:
    env = os.environ | {"INVSIM_ADMIN_TOKEN": TOKEN}
    with subprocess.Popen([*SPAWN, *args, "--port", "0"], env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
            assert process.poll() is None, "the server has died"
        finally:
            process.terminate()


# A thousand clients --------------------------------------------------------------------------------------------------


@dataclass
class Watched:
    """What all clients together have seen, and what must not be."""

    asked: int = 0
    answers: int = 0
    newest: int = 0
    by_state: dict[int, bytes] = field(default_factory=dict)
    backwards: int = 0
    mixed: int = 0

    def note(self, asked_at: int, state: int, body: bytes) -> None:
        """Enter an answer to a request that was sent when state ``asked_at`` had been seen already."""
        self.answers += 1
        self.backwards += state < asked_at
        self.newest = max(self.newest, state)
        self.mixed += self.by_state.setdefault(state, body) != body or not consistent(state, body)


def consistent(state: int, body: bytes) -> bool:
    """Whether an answer is all of one state: every even change sets the code, every odd one the registry."""
    answer = json.loads(body)
    (suggestion,) = answer["recovery_feedback"]["suggestions"]
    codes, registries = (state + 1) // 2, state // 2
    versions = answer["table_versions"]
    expected = {
        "active_csm_codes": f"codes-{codes}" if codes else "1.0.0",
        "promo_eligibility": f"registry-{registries}" if registries else "1.0.0",
    }
    return (
        versions == {**dict.fromkeys(versions, "1.0.0"), **expected}
        and {each["table"]: each["version"] for each in suggestion["tables"]} == expected
        and suggestion["parameters"] == {"promo_code": f"CODE{codes}" if codes else "SUMMERSALE25"}
    )


async def client(host: str, port: int, watched: Watched, connected: asyncio.Barrier, finished: threading.Event) -> None:
    body = b'{"plan":"plan_partner_growth"}'
    head = f"POST /requests HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    reader, writer = await asyncio.open_connection(host, port)
    await connected.wait()
    while not finished.is_set():
        asked_at = watched.newest
        watched.asked += 1
        writer.write(f"{head}\r\n\r\n".encode() + body)
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert headers.startswith("http/1.1 422 "), headers
        (length,) = re.findall(r"^content-length: (\d+)\r$", headers, re.M)
        (state,) = re.findall(r"^contract-state: \w+/(\d+)\r$", headers, re.M)
        watched.note(asked_at, int(state), await reader.readexactly(int(length)))
    writer.close()
    await writer.wait_closed()


def drift(url: str, finished: threading.Event) -> None:
    """Reload two tables in turn, then let the clients go."""
    try:
        with httpx.Client(base_url=url, trust_env=False, headers=OPERATOR, timeout=60) as operator:
            for number in range(1, RELOADS // 2 + 1):
                for table, rows, version in (
                    ("active_csm_codes", {"plan_partner_growth": {"code": f"CODE{number}"}}, f"codes-{number}"),
                    ("promo_eligibility", {f"CODE{number}": {"promo_type": "percent"}}, f"registry-{number}"),
                ):
                    body = {"table": table, "rows": rows, "version": version}
                    operator.post("/admin/reload-table", json=body).raise_for_status()
    finally:
        finished.set()


async def storm(url: str, watched: Watched) -> float:
    """Have all clients connect, then ask until the drift is over; return the seconds that took."""
    host, port = url.removeprefix("http://").split(":")
    finished, connected = threading.Event(), asyncio.Barrier(CLIENTS + 1)
    clients = [asyncio.create_task(client(host, int(port), watched, connected, finished)) for _ in range(CLIENTS)]
    await connected.wait()  # all of them hold a connection at once
    began = time.perf_counter()
    await asyncio.gather(asyncio.to_thread(drift, url, finished), *clients)
    return time.perf_counter() - began


def test_a_thousand_clients_lose_no_answer_and_never_see_two_states_in_one(ledger) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2 * CLIENTS), hard), hard))
    watched = Watched()
    with serving("acme") as url:
        took = asyncio.run(storm(url, watched))
    lost = watched.asked - watched.answers
    ledger.check(f"service: requests of {CLIENTS:,} clients at once", watched.asked, low=CLIENTS)
    ledger.check("service: answers lost", lost, high=0)
    ledger.check("service: answers older than one seen before they were asked for", watched.backwards, high=0)
    ledger.check("service: answers that mix two states", watched.mixed, high=0)
    ledger.check("service: states that answers came from", len(watched.by_state), low=RELOADS // 2)
    ledger.check("service: requests a second on loopback", watched.answers / took, low=50)


# Fuzzing by its own description --------------------------------------------------------------------------------------

SETTINGS = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "422"]  # 422: a policy's business, not the description's
"""


@pytest.mark.parametrize(("domain", "level"), [("acme", "L6"), ("recipes", "L4"), ("acme", "L0")])
def test_fuzzing_by_its_own_description_finds_nothing(domain: str, level: str, tmp_path: Path, ledger) -> None:
    (tmp_path / "schemathesis.toml").write_text(SETTINGS, encoding="utf-8")
    fuzzer = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    options = ["--max-examples", "20", "--seed", "1", "--no-color", "--warnings", "off"]
    with serving(domain, "--level", level) as url:
        done = subprocess.run(
            [*fuzzer, "run", f"{url}/openapi.json", "-H", f"Authorization: Bearer {TOKEN}", *options],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    generated = re.search(r"(\d+) generated", done.stdout)
    assert generated is not None, done.stdout[-2000:]
    ledger.check(f"service: requests fuzzed, {domain} at {level}, no check failed", int(generated[1]), low=200)


# Every scenario, against it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", scenarios.SHIPPED)
def test_every_arm_of_every_scenario_comes_out_the_same_over_the_wire(name: str) -> None:
    plan = compile_plan(scenarios.load_scenario(name))
    with serving(name) as url, Remote(url, token=TOKEN, domain=plan.domain) as remote:
        there = run(plan, model=NOISY, replications=1, seed=2, connect=remote.connect)
    assert there == run(plan, model=NOISY, replications=1, seed=2, engine="simpy")


@pytest.mark.parametrize("level", Level)
def test_the_rule_stream_comes_out_the_same_at_every_wire_level(level: Level) -> None:
    plan = compile_plan(scenarios.load_scenario("rules"), level=level)
    with serving("rules", "--level", level.name) as url, Remote(url, token=TOKEN, domain=plan.domain) as remote:
        there = run(plan, model=NOISY, replications=1, seed=2, connect=remote.connect)
    assert there == run(plan, model=NOISY, replications=1, seed=2, engine="simpy")
