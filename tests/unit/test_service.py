"""The service over real sockets: the same bytes, refusals that cost little, one state an answer, runs against it."""

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.cli import main
from invsim.client.arms import get_arm
from invsim.client.planners import Behaviour, ProbabilisticModel, RetryLaw, load_model
from invsim.errors import InputError
from invsim.experiment import run
from invsim.report.replay import quotas, script
from invsim.service.app import ADMIN_BYTES, BUSINESS_BYTES, build_app
from invsim.service.messages import FIELDS, RELOAD, Reader
from invsim.service.openapi import describe
from invsim.service.remote import Remote
from invsim.service.serving import running
from invsim.service.state import Service
from invsim.sim import scenario as scenarios
from invsim.sim.engine import rerun, simulate_block
from invsim.sim.plan import Plan, compile_plan
from invsim.world import Domain, Level, Request, Rule, Shape, Table, World, load_domain
from invsim.world.drift import Declare, Edit, after, play
from invsim.world.wire import canonical

TOKEN = "a-token-for-tests"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
JSON = {"Content-Type": "application/json"}
ACME = load_domain("acme")
GOVERNED = {"plan": "plan_partner_growth", "amount": 49.0}
ROTATION = Edit("active_csm_codes", {"plan_partner_growth": {"code": "WINTERLAUNCH26"}})
NOISY = ProbabilisticModel(
    "noisy", Behaviour(0.8, 0.4, 0.7, 0.5, 0.3, RetryLaw.geometric(0.6), RetryLaw.geometric(0.5))
)
SPAWN = [sys.executable, "-m", "invsim"]
Capsys = pytest.CaptureFixture[str]


@contextmanager
def serving(domain: str = "acme", level: Level = Level.L6) -> Iterator[tuple[str, Service]]:
    service = Service(load_domain(domain), level=level)
    with running(build_app(service, token=TOKEN)) as url:
        yield url, service


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[str, Service]]:
    with serving() as both:
        yield both


@pytest.fixture
def served(shared: tuple[str, Service]) -> tuple[str, Service]:
    """The same server for all, at its start again."""
    shared[1].reset()
    return shared


@pytest.fixture(scope="module")
def client(shared: tuple[str, Service]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared[0], trust_env=False, timeout=20) as opened:
        yield opened


@pytest.fixture
def http(client: httpx.Client, served: tuple[str, Service]) -> httpx.Client:
    """A client of the same server, at its start again."""
    return client


def plan_of(name: str, level: Level | None = None) -> Plan:
    return compile_plan(scenarios.load_scenario(name), level=level)


# Business answers ----------------------------------------------------------------------------------------------------


def sent_in(plan: Plan, worlds: list[World]) -> list[Request]:
    """Return every request that the tasks and the fixes of any of the worlds make."""
    found: dict[str, Request] = {}
    todo = [task.request for task in dict.fromkeys(plan.episodes)]
    while todo:
        request = todo.pop()
        if found.setdefault(canonical(dict(request.fields)), request) is request:
            told = [violation for world in worlds for _, violation in world.violations(request.fields)]
            todo += [request.merged(each.parameters) for each in told if each.parameters is not None]
    return list(found.values())


@pytest.mark.parametrize(
    ("name", "level"),
    [*((name, None) for name in scenarios.SHIPPED), *(("payments", level) for level in Level if level < Level.L6)],
)
def test_every_answer_of_the_shipped_scenarios_has_the_same_bytes(name: str, level: Level | None) -> None:
    plan = plan_of(name, level)
    worlds = [plan.world]
    for event in plan.drift:
        worlds.append(after(worlds[-1], event.operation)[0])
    requests = sent_in(plan, worlds)
    compared = set()
    with (
        serving(plan.domain.name, plan.world.level) as (url, _),
        Remote(url, token=TOKEN, domain=plan.domain) as remote,
    ):
        server = remote.connect(plan.world)
        for at, world in enumerate(worlds):
            if at:
                play(server, plan.drift[at - 1].operation)
            for request in requests:
                body, _ = remote.send(request)
                assert body == world.evaluate(request).to_bytes() == server.handle(request).to_bytes()
                compared.add((at, body))
    stamped = plan.world.level >= Level.L1 and bool(plan.drift)
    assert len(requests) > len(set(plan.episodes))
    assert len({body for _, body in compared}) == len(compared) if stamped else compared


def test_a_success_is_200_and_a_violation_422_under_the_name_of_one_state(http: httpx.Client) -> None:
    success, failure = (http.post("/requests", json=fields) for fields in ({"plan": "x", "any": True}, GOVERNED))
    assert (success.status_code, failure.status_code) == (200, 422)
    assert success.headers["content-type"] == failure.headers["content-type"] == "application/json"
    assert failure.content == ACME.world().evaluate(Request(GOVERNED)).to_bytes()
    assert success.headers["contract-state"] == failure.headers["contract-state"]
    assert re.fullmatch(r"[0-9a-f]{16}/0", success.headers["contract-state"])


# What operators do, and what any client may read ---------------------------------------------------------------------


def test_a_reload_answers_its_report_and_any_client_can_read_it_afterwards(http: httpx.Client) -> None:
    path = "/contract/reloads/active_csm_codes"
    assert http.get(path).json() == {"last_reload": None}
    world, report = ROTATION.apply(ACME.world())
    rows = {key: dict(row) for key, row in world.tables["active_csm_codes"].rows.items()}
    body = {"table": "active_csm_codes", "rows": rows}
    answer = http.post("/admin/reload-table", json=body, headers=OPERATOR)
    assert (answer.status_code, answer.json()) == (200, report.to_dict())
    assert http.get(path).json() == {"last_reload": report.to_dict()}
    assert http.post("/requests", json=GOVERNED).content == world.evaluate(Request(GOVERNED)).to_bytes()
    assert http.get("/contract").json()["table_versions"] == dict(world.versions)
    assert http.get("/admin/graph", headers=OPERATOR).json() == msgjson(world.graph.to_dict())


def msgjson(data: object) -> Any:
    return json.loads(json.dumps(data))


def test_rules_are_declared_and_withdrawn_and_logged(http: httpx.Client) -> None:
    rule = Rule("recommended_credit_token", "active_csm_codes", "settles_under", "token")
    _, change = ACME.world().declared(rule)
    declared = http.post("/admin/rules", json=rule.to_dict(), headers=OPERATOR)
    assert declared.json() == change.to_dict()
    query = dict(zip(("from", "to", "relation"), rule.triple, strict=True))
    withdrawn = http.delete("/admin/rules", params=query, headers=OPERATOR)
    assert withdrawn.json() == {**change.to_dict(), "added": False, "rules_version": ACME.world().rules_version}
    assert http.get("/contract/rules").json() == {"log": [declared.json(), withdrawn.json()]}
    assert http.get("/contract").json()["state"].endswith("/2")


def test_a_reset_goes_back_to_the_start_in_another_epoch(http: httpx.Client, served: tuple[str, Service]) -> None:
    start = http.get("/admin/world", headers=OPERATOR).json()
    served[1].reload_table("active_csm_codes", {})
    served[1].declare_rule(Rule("active_csm_codes", "token_funding_map", "r"))
    moved = http.get("/admin/world", headers=OPERATOR).json()
    assert moved["state"] == start["state"].replace("/0", "/2")
    assert moved["tables"] != start["tables"]
    again = http.post("/admin/reset", headers=OPERATOR).json()
    assert again == {**start, "state": again["state"]}
    assert again["state"] != start["state"]
    assert http.get("/contract/rules").json() == {"log": []}
    assert http.get("/contract/reloads/active_csm_codes").json() == {"last_reload": None}


@pytest.mark.parametrize("level", Level)
def test_what_any_client_may_read_tells_no_more_of_the_versions_than_a_response(level: Level) -> None:
    carried = ACME.world(level=level).evaluate(Request({})).to_dict().keys() & {"table_versions", "rules_version"}
    summary = Service(ACME, level=level).state.summary(ACME)
    assert summary.keys() == {"domain", "title", "level", "state"} | carried


# Refusals ------------------------------------------------------------------------------------------------------------


def described() -> list[tuple[str, str]]:
    paths = describe(ACME, ACME.world())["paths"]
    return [(method.upper(), path) for path, operations in paths.items() for method in operations]


@pytest.mark.parametrize(("method", "path"), [each for each in described() if each[1].startswith("/admin/")])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer a-token-for-test"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer"},
    ],
)
def test_every_admin_path_is_shut_without_the_token(
    method: str, path: str, headers: dict[str, str], http: httpx.Client, served: tuple[str, Service]
) -> None:
    before = served[1].state
    answer = http.request(method, path, headers=headers | JSON, content=b'{"table":"active_csm_codes","rows":{}}')
    assert_problem(answer, 401, "token")
    assert answer.headers["www-authenticate"] == 'Bearer realm="admin"'
    assert TOKEN not in answer.text
    assert served[1].state is before


def assert_problem(answer: httpx.Response, status: int, *says: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem.keys() == {"type", "title", "status", "detail"}
    assert problem["status"] == status
    assert len(problem["detail"]) <= 500
    for each in says:
        assert each in problem["detail"]


RELOAD_PATH = "/admin/reload-table"
ROWS = '"rows":{"p":{"code":"C"}}'
TRIPLE = "from=active_csm_codes&to=promo_eligibility&relation="


@pytest.mark.parametrize(
    ("call", "body", "status", "says"),
    [
        ("POST /requests", "{", 400, "not valid JSON"),
        ("POST /requests", "", 400, "not valid JSON"),
        ("POST /requests", "[1]", 400, "Expected 'object', got 'array'"),
        ("POST /requests", '{"a":null}', 400, "got 'null'"),
        ("POST /requests", '{"a":[1]}', 400, "got 'array'"),
        ("POST /requests", '{"a":NaN}', 400, "not valid JSON"),
        ("POST /requests", '{"a":-Infinity}', 400, "not valid JSON"),
        ("POST /requests", '{"a":1e999}', 400, "out of range"),
        ("POST /requests", '{"a":1,"a":2}', 400, "the same key twice (got 'a')"),
        ("POST /requests", '{"a":"\\ud800"}', 400, "not valid JSON"),
        ("POST /requests", '{"a":"\xff"}', 400, "not valid JSON"),
        ("POST /requests", '{"a":"' + "x" * BUSINESS_BYTES + '"}', 413, "at most 65,536 bytes"),
        ("GET /requests", "", 405, ""),
        ("POST /requests/", "{}", 404, ""),
        ("PUT /contract", "{}", 405, ""),
        ("GET /nowhere", "", 404, ""),
        ("GET /contract/reloads/active_csm_code", "", 404, "did you mean 'active_csm_codes'"),
        ("GET /contract/reloads/%00%F0%9F%92%A9", "", 404, "unknown table"),
        (f"POST {RELOAD_PATH}", "{}", 400, "missing required field 'table'"),
        (f"POST {RELOAD_PATH}", f'{{"table":"active_csm_code",{ROWS}}}', 404, "did you mean 'active_csm_codes'"),
        (f"POST {RELOAD_PATH}", f'{{"table":7,{ROWS}}}', 400, "$.table"),
        (f"POST {RELOAD_PATH}", f'{{"table":"active_csm_codes",{ROWS},"x":1}}', 400, "unknown field 'x'"),
        (f"POST {RELOAD_PATH}", f'{{"table":"active_csm_codes",{ROWS},"version":""}}', 400, "$.version"),
        (f"POST {RELOAD_PATH}", f'{{"table":"active_csm_codes",{ROWS},"version":"1.0.0"}}', 409, "needs a new one"),
        (f"POST {RELOAD_PATH}", '{"table":"active_csm_codes","rows":{"p":{}}}', 409, "lacks the column 'code'"),
        (f"POST {RELOAD_PATH}", '{"table":"active_csm_codes","rows":{"p":{"code":{}}}}', 400, "got 'object'"),
        (f"POST {RELOAD_PATH}", '{"rows":{"p":{"a":1,"a":2}},"table":"x"}', 400, "the same key twice"),
        ("POST /admin/rules", '{"from":"active_csm_codes","to":"x","relation":"r"}', 404, "unknown table 'x'"),
        (
            "POST /admin/rules",
            '{"from":"token_funding_map","to":"recommended_credit_token","relation":"replaced_by"}',
            409,
            "declared already",
        ),
        (f"DELETE /admin/rules?{TRIPLE}none", "", 404, "unknown rule"),
        ("DELETE /admin/rules?from=active_csm_codes", "", 400, "from, to, relation"),
        (f"DELETE /admin/rules?{TRIPLE}a&from=b", "", 400, "each once"),
        ("DELETE /admin/graph", "", 405, ""),
        ("GET /admin/nowhere", "", 404, ""),
    ],
)
def test_whatever_is_wrong_is_one_problem_and_changes_nothing(
    call: str, body: str, status: int, says: str, http: httpx.Client, served: tuple[str, Service]
) -> None:
    before = served[1].state
    method, path = call.split()
    answer = http.request(method, path, content=body.encode("latin-1"), headers=OPERATOR | JSON)
    assert_problem(answer, status, says)
    assert served[1].state is before
    assert http.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
def test_another_content_type_is_refused(headers: dict[str, str], http: httpx.Client) -> None:
    assert_problem(http.post("/requests", content=b"{}", headers=headers), 415)
    told = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    assert http.post("/requests", content=b"{}", headers=told).status_code == 200


def test_a_method_that_is_not_there_is_told_which_are(http: httpx.Client) -> None:
    assert http.get("/requests").headers["allow"] == "POST"
    assert http.get("/admin/reset", headers=OPERATOR).headers["allow"] == "POST"


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_refused_and_the_server_lives(opening: str, http: httpx.Client) -> None:
    deep = (opening * 100_000).encode()
    unknown = b'{"table":"active_csm_codes","rows":{"p":{"code":' + deep
    assert_problem(http.post("/requests", content=deep, headers=JSON), 413)
    assert_problem(http.post("/requests", content=b'{"a":' + deep[:60_000], headers=JSON), 400)
    assert_problem(http.post(RELOAD_PATH, content=deep, headers=JSON | OPERATOR), 400)
    assert_problem(http.post(RELOAD_PATH, content=unknown, headers=JSON | OPERATOR), 400)
    assert http.get("/health").status_code == 200


@given(
    st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(str.encode),
        st.from_regex(r'\{("[ab]":[\[\]{}0-9e.,"-]*,?)*\}?').map(str.encode),
    )
)
def test_any_bytes_are_read_or_refused_in_one_line(body: bytes) -> None:
    for reader in (FIELDS, RELOAD):
        refusal = refused(reader, body)
        assert refusal is None or (refusal and refusal.isprintable())


def refused(reader: Reader[Any], body: bytes) -> str | None:
    try:
        reader.read(body)
    except InputError as error:
        return str(error)
    return None


# Bodies that do not end ----------------------------------------------------------------------------------------------

HUNDRED_MB = 100_000_000


def flood(url: str, head: str, chunk: bytes) -> tuple[int, bytes]:
    """Send a body of 100 MB for as long as the server takes it; return how much it took, and the answer."""
    host, port = url.removeprefix("http://").split(":")
    sent = 0
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(f"POST {head}\r\nHost: x\r\nContent-Type: application/json\r\n\r\n".encode())
        try:
            while sent < HUNDRED_MB:
                sent += line.send(chunk)
        except (ConnectionResetError, BrokenPipeError):
            pass  # the server has closed: what this is about
        answer = b""
        try:
            while data := line.recv(65536):
                answer += data
        except ConnectionResetError:
            pass
    return sent, answer


@pytest.mark.parametrize(
    ("head", "chunk", "status"),
    [
        (f"/requests HTTP/1.1\r\nContent-Length: {HUNDRED_MB}", b"x" * 65536, 413),
        ("/requests HTTP/1.1\r\nTransfer-Encoding: chunked", b"10000\r\n" + b"x" * 65536 + b"\r\n", 413),
        ("/admin/reload-table HTTP/1.1\r\nTransfer-Encoding: chunked", b"10000\r\n" + b"x" * 65536 + b"\r\n", 401),
        (f"/nowhere HTTP/1.1\r\nContent-Length: {HUNDRED_MB}", b"x" * 65536, 404),
    ],
)
def test_a_body_of_100_mb_is_cut_off(head: str, chunk: bytes, status: int, served: tuple[str, Service]) -> None:
    sent, answer = flood(served[0], head, chunk)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in answer.lower()
    assert sent < HUNDRED_MB / 4  # what the sockets of both ends hold, and no more


@pytest.mark.parametrize(
    ("path", "declared", "most"),
    [
        ("/requests", None, BUSINESS_BYTES + 65536),
        ("/requests", HUNDRED_MB, 0),
        (RELOAD_PATH, None, ADMIN_BYTES + 65536),
        (RELOAD_PATH, HUNDRED_MB, 0),
    ],
)
def test_no_more_of_a_body_is_read_than_the_limit(path: str, declared: int | None, most: int) -> None:
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 65536
        return {"type": "http.request", "body": b"x" * 65536, "more_body": True}

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(name.lower().encode(), value.encode()) for name, value in (OPERATOR | JSON).items()]
    length = (b"content-length", str(declared).encode())
    headers.append((b"transfer-encoding", b"chunked") if declared is None else length)
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    asyncio.run(build_app(Service(ACME), token=TOKEN)(scope, receive, send))
    assert sent[0]["status"] == 413
    assert (b"connection", b"close") in sent[0]["headers"]
    assert read <= most


HALF_A_REQUEST = b"POST /requests HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"


def test_a_body_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, served: tuple[str, Service]
) -> None:
    monkeypatch.setattr("invsim.service.problems.BODY_SECONDS", 0.05)
    host, port = served[0].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(HALF_A_REQUEST)
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"more than 0.05 s" in answer


def test_a_client_that_goes_away_midway_disturbs_nobody(http: httpx.Client, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection((http.base_url.host, http.base_url.port or 0), timeout=20) as line:
        line.sendall(HALF_A_REQUEST)
    assert http.get("/health").status_code == 200
    assert capfd.readouterr().err == ""


def test_a_policy_that_fails_is_a_problem_without_its_text_and_one_line_for_the_operator(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Broken:
        type, shape, table = "BROKEN", Shape.ADD, None

        def check(self, fields: object, tables: object) -> None:
            raise RuntimeError("a secret\nof two lines")

    service = Service(Domain("d", "", ACME.tables, (), (Broken(),)))
    with running(build_app(service, token=TOKEN)) as url:
        answer = httpx.post(f"{url}/requests", json={}, trust_env=False)
    assert_problem(answer, 500, "the server made a mistake")
    assert "secret" not in answer.text
    assert capfd.readouterr().err == "invsim: server: RuntimeError: a secret\\nof two lines\n"


# One state an answer -------------------------------------------------------------------------------------------------


def test_readers_never_see_two_states_in_one_answer_nor_an_older_one_later() -> None:
    service = Service(ACME)
    done = threading.Event()

    def reload() -> None:
        for number in range(300):
            service.reload_table("active_csm_codes", {"plan_partner_growth": {"code": f"C{number}"}}, f"v{number}")
        done.set()

    def read(found: list[tuple[int, str]]) -> None:
        while not done.is_set():
            state = service.state
            answer = state.world.evaluate(Request(GOVERNED))
            assert answer.table_versions is not None
            found.append((state.number, answer.table_versions["active_csm_codes"]))
            code = answer.suggestions[0].parameters["promo_code"]
            if state.number:
                assert found[-1][1] == f"v{state.number - 1}"
                assert code == f"C{state.number - 1}"

    seen: list[list[tuple[int, str]]] = [[] for _ in range(3)]
    threads = [threading.Thread(target=read, args=[each]) for each in seen] + [threading.Thread(target=reload)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in seen:
        numbers = [number for number, _ in found]
        assert numbers == sorted(numbers)
    assert service.state.number == 300


def test_writers_wait_for_each_other() -> None:
    service = Service(ACME)

    def reload() -> None:
        for _ in range(50):
            service.reload_table("promo_eligibility", {})

    threads = [threading.Thread(target=reload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert service.state.number == 200
    assert service.state.world.versions["promo_eligibility"] == "1.0.200"


# Runs against it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "arms"),
    [
        ("payments", "gpt-5-mini", "A0 A1 A2D A2DG"),
        ("rules", "claude-sonnet-4-6", "A2DC A2DR A2DRC A2DO"),
        ("recipes", "gemini-3.5-flash", "A2 A2DG"),
    ],
)
def test_a_run_against_the_service_equals_the_one_in_this_process(name: str, model: str, arms: str) -> None:
    plan, asked = plan_of(name), [get_arm(each) for each in arms.split()]
    with serving(plan.domain.name) as (url, _), Remote(url, token=TOKEN, domain=plan.domain) as remote:
        there = run(plan, model=load_model(model), arms=asked, replications=1, seed=3, connect=remote.connect)
        here = run(plan, model=load_model(model), arms=asked, replications=1, seed=3, engine="simpy")
        assert there == here
        logs = [
            rerun(plan, arm=asked[-1], model=load_model(model), seed=3, stream=5, **more)
            for more in ({"connect": remote.connect}, {})
        ]
    assert logs[0] == logs[1]


def test_scripted_runs_against_the_service_equal_those_in_this_process(served: tuple[str, Service]) -> None:
    plan = plan_of("payments")
    chosen = {quota.arm: quota for quota in quotas() if quota.model == "claude-sonnet-4-6"}
    assert len(chosen) >= 4
    with Remote(served[0], token=TOKEN, domain=ACME) as remote:
        for arm, quota in chosen.items():
            there, here = (
                simulate_block(plan, arm=get_arm(arm), model=script(plan, quota), seed=0, first=0, count=1, **more)
                for more in ({"connect": remote.connect}, {})
            )
            assert (there.episodes == here.episodes).all()
            assert (there.streams == here.streams).all()
            assert (there.alerts == here.alerts).all()


def test_only_simpy_plays_against_a_service(served: tuple[str, Service]) -> None:
    with Remote(served[0], token=TOKEN, domain=ACME) as remote:
        for engine in ("exact", "vector"):
            with pytest.raises(InputError, match="only the simpy engine"):
                run(plan_of("payments"), model=NOISY, engine=engine, connect=remote.connect)


def test_equal_versions_are_one_object_until_the_world_moves(served: tuple[str, Service]) -> None:
    with Remote(served[0], token=TOKEN, domain=ACME) as remote:
        server = remote.connect(ACME.world())
        first, other = server.handle(Request(GOVERNED)), server.handle(Request({"plan": "x"}))
        assert server.handle(Request(GOVERNED)) is first
        assert other.table_versions is first.table_versions
        play(server, Declare(Rule("active_csm_codes", "token_funding_map", "r")))
        moved = server.handle(Request(GOVERNED))
        assert moved.table_versions == first.table_versions
        assert moved.table_versions is not first.table_versions
        assert [change.added for change in server.rule_log] == [True]


def test_drift_is_driven_over_the_wire_and_read_back(served: tuple[str, Service]) -> None:
    url, service = served
    with Remote(url, token=TOKEN, domain=ACME) as remote:
        server = remote.connect(ACME.world())
        assert server.last_reload("active_csm_codes") is None
        report = play(server, ROTATION)
        assert service.state.reloads["active_csm_codes"] == report == server.last_reload("active_csm_codes")
        assert service.state.world.versions == server.world.versions
        change = server.withdraw_rule(("token_funding_map", "recommended_credit_token", "replaced_by"))
        assert service.state.rule_log == (change,) == tuple(server.rule_log)


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (ACME.world(level=Level.L4), "serves another wire level than this plan's, 'L4' (got 'L6')"),
        (load_domain("recipes").world(), "serves another tables"),
        (ACME.world().reloaded("active_csm_codes", {}, "2")[0], "starts table 'active_csm_codes' at another version"),
        (ACME.world().withdrawn(ACME.rules[0].triple)[0], "starts with other rules"),
    ],
)
def test_a_service_that_serves_another_world_is_refused(world: World, says: str, served: tuple[str, Service]) -> None:
    with Remote(served[0], token=TOKEN, domain=ACME) as remote, pytest.raises(InputError, match=re.escape(says)):
        remote.connect(world)


def test_a_service_with_other_rows_or_of_another_domain_is_refused_and_left_alone() -> None:
    plan = plan_of("payments")
    with serving("recipes") as (url, service), Remote(url, token=TOKEN, domain=ACME) as remote:
        before = service.state
        with pytest.raises(InputError, match=r"another domain than this plan's, 'acme' \(got 'recipes'\)"):
            remote.connect(plan.world)
        assert service.state is before
    with serving() as (url, service), Remote(url, token=TOKEN, domain=ACME) as remote:
        table = plan.world.tables["active_csm_codes"]
        reordered = Table(table.name, dict(reversed(table.rows.items())))
        service.start = World({**plan.world.tables, table.name: reordered}, plan.world.rules, plan.world.policies)
        with pytest.raises(InputError, match="starts with other rows in table 'active_csm_codes'"):
            remote.connect(plan.world)


@pytest.mark.parametrize("move", [lambda s: s.reset(), lambda s: s.reload_table("promo_eligibility", {})])
def test_somebody_elses_hand_on_the_service_ends_the_run(
    move: Callable[[Service], object], served: tuple[str, Service]
) -> None:
    with Remote(served[0], token=TOKEN, domain=ACME) as remote:
        server = remote.connect(ACME.world())
        server.handle(Request(GOVERNED))
        move(served[1])
        with pytest.raises(InputError, match="somebody else has reset or moved the service"):
            server.handle(Request(GOVERNED))


def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def replying(status: int, body: bytes, after: float = 0.0) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(after)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return app


@pytest.mark.parametrize(
    ("status", "body", "after", "says"),
    [
        (200, b"hello", 0, "what the contract does not allow: not valid JSON"),
        (200, b'{"domain":"acme"}', 0, "missing required field 'level'"),
        (200, b"[" * 100_000, 0, "what the contract does not allow"),
        (404, b"no", 0, r"not a service of this kind: it answers \(got 404\)"),
        (307, b"", 0, r"it answers \(got 307\)"),
        (503, b'{"title":"Down","detail":"back\\nsoon"}', 0, r"answered 503 Down: back\\nsoon"),
        (200, b"", 1, "no answer in 0.2 s"),
    ],
)
def test_a_server_of_another_kind_is_one_clear_error(status: int, body: bytes, after: float, says: str) -> None:
    with (
        running(replying(status, body, after)) as url,
        Remote(url, token=TOKEN, domain=ACME, seconds=0.2 if after else 10) as remote,
        pytest.raises(InputError, match=says) as caught,
    ):
        remote.connect(ACME.world())
    assert str(caught.value).startswith(url)
    assert str(caught.value).isprintable()


def test_nothing_there_a_wrong_token_or_no_url_is_one_clear_error(served: tuple[str, Service]) -> None:
    with (
        Remote(f"http://127.0.0.1:{unused_port()}", token=TOKEN, domain=ACME) as remote,
        pytest.raises(InputError, match="nothing answers there"),
    ):
        remote.connect(ACME.world())
    with (
        Remote(served[0], token="another", domain=ACME) as remote,
        pytest.raises(InputError, match="does not know this operator's token") as caught,
    ):
        remote.connect(ACME.world())
    assert "another" not in str(caught.value)
    for url in ("127.0.0.1:80", "ftp://x", "http://", "http://x:port", "http://x/?q=1"):
        with pytest.raises(InputError, match=r"URL|http://HOST:PORT"):
            Remote(url, token=TOKEN, domain=ACME)
    with pytest.raises(InputError, match="holds no password") as caught:
        Remote("http://me:secret@x", token=TOKEN, domain=ACME)
    assert "secret" not in str(caught.value)


# The description -----------------------------------------------------------------------------------------------------


def test_the_description_is_served_and_names_every_path(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document == msgjson(describe(ACME, ACME.world()))
    assert document["openapi"].startswith("3.1")
    app = build_app(Service(ACME), token=TOKEN)
    routed = {
        (method, prefix + route.path)
        for prefix, routes in (("", app.routes[:-1]), ("/admin", app.routes[-1].routes))
        for route in routes
        for method in route.methods - {"HEAD"}
    }
    assert set(described()) == routed
    fields = document["components"]["schemas"]["Request"]["properties"]
    assert fields.keys() == {"plan", "promo_code", "payment_method_token", "contract", "promo_type", "amount"}


@pytest.mark.parametrize("level", Level)
def test_the_description_has_the_fields_of_its_wire_level(level: Level) -> None:
    world = ACME.world(level=level)
    failure = describe(ACME, world)["components"]["schemas"]["Failure"]
    assert failure["properties"].keys() == world.evaluate(Request(GOVERNED)).to_dict().keys()


# The command line ----------------------------------------------------------------------------------------------------


@contextmanager
def command(*args: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run ``invsim serve`` as people do, and yield its URL."""
    env = {name: value for name, value in os.environ.items() if name != "INVSIM_ADMIN_TOKEN"} | environment
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*SPAWN, "serve", *args, "--port", "0"], env=env, **pipes) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1], process
        finally:
            process.kill()


def shuts(host: str, port: int) -> bool:
    """Whether an address stops taking connections within ten seconds."""
    for _ in range(1000):
        try:
            socket.create_connection((host, port), timeout=20).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_is_under_way_finish(number: signal.Signals) -> None:
    with command("acme", "--level", "L4") as (url, process):
        host, port = url.removeprefix("http://").split(":")
        body = json.dumps(GOVERNED).encode()
        head = (
            f"POST /requests HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        with socket.create_connection((host, int(port)), timeout=20) as line:
            line.sendall(head.encode())
            assert line.recv(65536).startswith(b"HTTP/1.1 100 ")  # it has the request, and waits for the body
            process.send_signal(number)
            assert shuts(host, int(port))
            line.sendall(body)
            answer = b""
            while data := line.recv(65536):
                answer += data
        assert answer.startswith(b"HTTP/1.1 422 ")
        assert answer.endswith(ACME.world(level=Level.L4).evaluate(Request(GOVERNED)).to_bytes())
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert re.fullmatch(r"operator token: [\w-]{32}\nstopped\n", process.stderr.read())


def test_a_run_by_command_against_a_serve_by_command(
    capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from-a-file\n", encoding="utf-8")
    args = "run payments --model gpt-5-mini --arms A0,A2D --replications 1 --json"
    with command("payments", "--admin-token-file", str(tmp_path / "token")) as (url, process):
        monkeypatch.setenv("SOME_TOKEN", "from-a-file")
        outputs = []
        for more in (f"--server {url} --admin-token-env SOME_TOKEN", "--engine simpy"):
            assert main([*args.split(), *more.split()]) == 0
            outputs.append(capsys.readouterr().out)
        assert outputs[0] == outputs[1]
        process.terminate()
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert "from-a-file" not in process.stderr.read()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("serve acne", "unknown domain or scenario 'acne': did you mean 'acme'?"),
        ("serve missing.toml", "missing.toml: cannot be read"),
        ("serve bad.toml", "bad.toml: Object missing required field"),
        ("serve acme --level L3", "--level: unknown wire level 'L3'"),
        ("serve acme --port 70000", "'--port'"),
        ("serve acme --port TAKEN", "something listens there already; --port 0 takes a free port"),
        ("serve acme --host 0.0.0.0 --port 0", "--host: other machines can reach that address; --allow-remote"),
        ("serve acme --host nowhere.invalid --allow-remote --port 0", "cannot listen"),
        ("serve acme --admin-token-file empty", "one word of printable ASCII"),
        ("serve acme --admin-token-file missing", "missing: cannot be read"),
        ("run payments --admin-token-env X", "--admin-token-env: goes with --server"),
        ("run payments --server http://127.0.0.1:TAKEN --admin-token-env NONE_SUCH", "NONE_SUCH: the operator's token"),
    ],
)
def test_a_service_that_cannot_be_is_one_line(
    args: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text("", encoding="utf-8")
    Path("empty").write_text("\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(shlex.split(args.replace("TAKEN", port))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_a_file_is_a_domain_or_a_scenario(tmp_path: Path, capsys: Capsys) -> None:
    domain, manifest = tmp_path / "mine.toml", tmp_path / "stream.toml"
    domain.write_text(ACME.source.text, encoding="utf-8")
    text = scenarios.shipped_text("payments").replace('"acme"', '"mine.toml"').replace('"payments"', '"my-payments"')
    manifest.write_text(text.replace('"L6"', '"L4"'), encoding="utf-8")
    levels = {}
    for file, more in ((domain, []), (manifest, []), (manifest, ["--level", "L1"])):
        assert main(["serve", str(file), "--print-openapi", *more]) == 0
        document = json.loads(capsys.readouterr().out)
        levels[file.name, *more] = document["components"]["schemas"]["Contract"]["properties"]["level"]["const"]
    assert list(levels.values()) == ["L6", "L4", "L1"]


@pytest.mark.parametrize(
    ("missing", "args"),
    [("starlette", "serve acme"), ("uvicorn", "serve acme"), ("httpx", "run payments --server http://x")],
)
def test_without_the_extra_it_says_how_to_get_it(missing: str, args: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from invsim.cli import main; sys.exit(main({args.split()!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"invsim: this needs {missing}: pip install 'invsim[serve]'\n"
