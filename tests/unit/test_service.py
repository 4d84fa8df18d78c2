"""The service over real sockets: the same bytes, refusals that cost little, and one state an answer."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.errors import InputError
from invsim.service.app import ADMIN_BYTES, BUSINESS_BYTES, build_app
from invsim.service.messages import FIELDS, RELOAD, Reader
from invsim.service.openapi import describe
from invsim.service.serving import running
from invsim.service.state import Service
from invsim.world import Domain, Level, Request, Rule, Shape, load_domain
from invsim.world.drift import Edit

TOKEN = "a-token-for-tests"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
JSON = {"Content-Type": "application/json"}
ACME = load_domain("acme")
GOVERNED = {"plan": "plan_partner_growth", "amount": 49.0}
ROTATION = Edit("active_csm_codes", {"plan_partner_growth": {"code": "WINTERLAUNCH26"}})


@pytest.fixture(scope="module")
def client(_shared: tuple[str, Service]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=_shared[0], trust_env=False, timeout=20) as opened:
        yield opened


@pytest.fixture
def http(client: httpx.Client, served: tuple[str, Service]) -> httpx.Client:
    """A client of the same server, at its start again."""
    return client


# Business answers ----------------------------------------------------------------------------------------------------


def test_a_success_is_200_and_a_violation_422_under_the_name_of_one_state(http: httpx.Client) -> None:
    success, failure = (http.post("/requests", json=fields) for fields in ({"plan": "x", "any": True}, GOVERNED))
    assert (success.status_code, failure.status_code) == (200, 422)
    assert success.headers["content-type"] == failure.headers["content-type"] == "application/json"
    assert failure.content == ACME.world().evaluate(Request(GOVERNED)).to_bytes()
    assert success.headers["contract-state"] == failure.headers["contract-state"]
    assert re.fullmatch(r"[0-9a-f]{16}/0", success.headers["contract-state"])


@pytest.mark.parametrize("amount", ["9" * 4300, "-" + "9" * 4299, "1.7976931348623157e308", "-5e-324", "1e-400", "-0"])
@pytest.mark.parametrize("field", ["amount", "plan", "promo_code", "payment_method_token"])
def test_a_number_of_any_size_is_answered_as_in_this_process(amount: str, field: str, http: httpx.Client) -> None:
    answer = http.post("/requests", content=f'{{"{field}":{amount}}}', headers=JSON)
    assert answer.content == ACME.world().evaluate(Request(json.loads(f'{{"{field}":{amount}}}'))).to_bytes()
    assert answer.status_code in {200, 422}


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


# The description -----------------------------------------------------------------------------------------------------


def test_the_description_is_served_and_names_every_path(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document == msgjson(describe(ACME, ACME.world()))
    assert document["openapi"].startswith("3.1")
    app = build_app(Service(ACME), token=TOKEN)
    routed = {
        (method, prefix + route.path_format)
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
