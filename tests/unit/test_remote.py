"""The simulator against the service: the same answers and the same numbers, and one line for whatever goes wrong."""

import asyncio
import re
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from invsim.client.arms import get_arm
from invsim.client.planners import Behaviour, ProbabilisticModel, RetryLaw, load_model
from invsim.errors import InputError
from invsim.experiment import run
from invsim.report.replay import quotas, script
from invsim.service.app import build_app
from invsim.service.remote import Remote
from invsim.service.serving import running
from invsim.service.state import Service
from invsim.sim import scenario as scenarios
from invsim.sim.engine import rerun, simulate_block
from invsim.sim.plan import Plan, compile_plan
from invsim.world import Domain, Level, Request, Rule, Table, World, load_domain
from invsim.world.drift import Declare, Edit, after, play
from invsim.world.wire import canonical

TOKEN = "a-token-for-tests"
JSON = {"Content-Type": "application/json"}
ACME = load_domain("acme")
GOVERNED = {"plan": "plan_partner_growth", "amount": 49.0}
ROTATION = Edit("active_csm_codes", {"plan_partner_growth": {"code": "WINTERLAUNCH26"}})
NOISY = ProbabilisticModel(
    "noisy", Behaviour(0.8, 0.4, 0.7, 0.5, 0.3, RetryLaw.geometric(0.6), RetryLaw.geometric(0.5))
)
Serving = Callable[..., AbstractContextManager[tuple[str, Service]]]


def plan_of(name: str, level: Level | None = None) -> Plan:
    return compile_plan(scenarios.load_scenario(name), level=level)


# The same answers ----------------------------------------------------------------------------------------------------


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
def test_every_answer_of_the_shipped_scenarios_has_the_same_bytes(
    name: str, level: Level | None, serving: Serving
) -> None:
    plan = plan_of(name, level)
    worlds = [plan.world]
    for event in plan.drift:
        worlds.append(after(worlds[-1], event.operation)[0])
    requests = sent_in(plan, worlds)
    compared = set()
    with (
        serving(plan.domain.name, plan.world.level.name) as (url, _),
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


# Runs against it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "arms"),
    [
        ("payments", "gpt-5-mini", "A0 A1 A2D A2DG"),
        ("rules", "claude-sonnet-4-6", "A2DC A2DR A2DRC A2DO"),
        ("recipes", "gemini-3.5-flash", "A2 A2DG"),
    ],
)
def test_a_run_against_the_service_equals_the_one_in_this_process(
    name: str, model: str, arms: str, serving: Serving
) -> None:
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


def test_a_table_may_have_any_name() -> None:
    name = "a/b?c%2F d"
    domain = Domain("odd", "", (Table(name, {"k": {"a": [1, 2.5, True, "x"]}}),), (), ())
    service = Service(domain)
    with running(build_app(service, token=TOKEN)) as url, Remote(url, token=TOKEN, domain=domain) as remote:
        server = remote.connect(domain.world())
        report = play(server, Edit(name, {"k": {"a": [1, 2.5, 1, "x"]}}))
        assert report.diff.keys == ("k",)
        assert server.last_reload(name) == report


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


def test_a_service_with_other_rows_or_of_another_domain_is_refused_and_left_alone(serving: Serving) -> None:
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
