"""The driver around an arm: what it observes, what it asks the server for, and when it commits."""

import pytest

from invsim.client.agent import Agent
from invsim.client.arms import Arm, arm_names, get_arm
from invsim.client.memory import Slot
from invsim.world import Level, Request, Response, Rule, Server, Suggestion, load_domain
from invsim.world.drift import Edit, Withdraw, play
from invsim.world.wire import CacheHint

PLAN = "plan_partner_growth"
GOVERNED = Request({"plan": PLAN, "amount": 49.0})
CODE = Slot("ADD_ACTIVE_PROMO_CODE", PLAN)
PLAIN = Request({"plan": "plan_standard", "amount": 10.0})
TOKENS = ("acme_pm_visa_debit", "acme_pm_mastercard_debit", "acme_pm_maestro_debit")
ROTATION = Edit("active_csm_codes", {PLAN: {"code": "WINTERLAUNCH26"}})
BENIGN = Edit("recommended_credit_token")
STORING = [name for name in arm_names() if get_arm(name).stores]


def connect(name: str, level: Level = Level.L6) -> tuple[Server, Agent]:
    server = Server(load_domain("acme").world(level=level))
    return server, Agent(get_arm(name), server)


def learn(server: Server, agent: Agent, slot: Slot, request: Request) -> None:
    """Play an episode: a failure, the suggested fix, a success, and the commit."""
    refused = server.handle(request)
    agent.receive(refused)
    mended = request.merged(refused.suggestions[0].parameters)
    accepted = server.handle(mended)
    assert accepted.ok
    agent.receive(accepted)
    agent.commit(slot, refused.suggestions, mended)


def learn_funding(server: Server, agent: Agent) -> list[Slot]:
    slots = [Slot("USE_REQUIRED_FUNDING_TYPE", token) for token in TOKENS]
    for slot in slots:
        learn(server, agent, slot, Request({"contract": "enterprise_annual", "payment_method_token": slot.key}))
    return slots


def recalled(agent: Agent, slot: Slot = CODE) -> list[dict]:
    return [dict(entry.parameters) for entry in agent.recall(slot)]


# Commit on completion -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORING)
def test_a_suggestion_is_stored_when_its_episode_completes_and_not_before(name: str) -> None:
    server, agent = connect(name)
    refused = server.handle(GOVERNED)
    for _ in range(5):  # an episode that exhausts its attempts
        agent.receive(refused)
    assert agent.recall(CODE) == ()
    learn(server, agent, CODE, GOVERNED)
    assert recalled(agent) == [{"promo_code": "SUMMERSALE25"}]


def test_without_memory_nothing_is_ever_recalled() -> None:
    server, agent = connect("A0")
    learn(server, agent, CODE, GOVERNED)
    assert agent.recall(CODE) == ()
    assert len(agent.memory) == 0


@pytest.mark.parametrize("name", arm_names())
def test_a_computed_suggestion_is_never_stored(name: str) -> None:
    server, agent = connect(name)
    learn(server, agent, Slot("ROUND_AMOUNT", "any"), Request({"amount": 1.005}))
    assert len(agent.memory) == 0


def fix(code: str, family: str = CODE.family, **more: str) -> Suggestion:
    return Suggestion(family, {"promo_code": code, **more}, CacheHint.CACHEABLE, "active_csm_codes")


def test_only_the_slots_own_family_is_stored() -> None:
    server, agent = connect("A1")
    agent.receive(server.handle(PLAIN))
    told = [fix("NEW"), fix("NEW", "USE_RECOGNISED_PROMO_CODE")]
    request = Request({"plan": PLAN, "promo_code": "NEW"})
    stored = agent.commit(CODE, told, request)
    assert stored is not None
    assert (stored.slot, recalled(agent)) == (CODE, [{"promo_code": "NEW"}])
    assert agent.commit(Slot("USE_REQUIRED_PROMO_TYPE", PLAN), told, request) is None
    assert len(agent.memory) == 1


def test_only_a_fix_that_the_completing_request_carried_is_stored() -> None:
    server, agent = connect("A1")
    agent.receive(server.handle(PLAIN))
    told = [fix("FIRST"), fix("SECOND")]
    assert agent.commit(CODE, told, Request({"plan": PLAN})) is None
    assert agent.commit(CODE, told, Request({"plan": PLAN, "promo_code": "OTHER"})) is None
    agent.commit(CODE, told, Request({"plan": PLAN, "promo_code": "FIRST"}))
    assert recalled(agent) == [{"promo_code": "FIRST"}]


def test_of_several_that_it_carried_the_latest_counts() -> None:
    server, agent = connect("A1")
    agent.receive(server.handle(PLAIN))
    told = [fix("NEW"), fix("NEW", currency="EUR")]
    agent.commit(CODE, told, Request({"promo_code": "NEW", "currency": "EUR"}))
    assert recalled(agent) == [{"promo_code": "NEW", "currency": "EUR"}]


def test_after_a_rotation_an_append_store_recalls_both_and_a_current_store_one() -> None:
    for name, expected in (("A1", ["SUMMERSALE25", "WINTERLAUNCH26"]), ("A2D", ["WINTERLAUNCH26"])):
        server, agent = connect(name)
        learn(server, agent, CODE, GOVERNED)
        play(server, ROTATION)
        learn(server, agent, CODE, GOVERNED)
        assert [each["promo_code"] for each in recalled(agent)] == expected


@pytest.mark.parametrize("name", ["A2D", "A2DC"])
def test_a_fix_suggested_before_its_row_changed_is_not_stored_as_current(name: str) -> None:
    server, agent = connect(name)
    told = server.handle(GOVERNED).suggestions
    agent.receive(server.handle(GOVERNED))
    play(server, ROTATION)  # between two attempts of one episode
    solved = server.world.solution(GOVERNED)
    assert solved is not None
    agent.receive(server.handle(solved))  # the planner worked the new code out by itself
    agent.commit(CODE, told, solved)
    agent.receive(server.handle(PLAIN))
    assert {"promo_code": "SUMMERSALE25"} not in recalled(agent)


# Versions are observed on every response ----------------------------------------------------------------------------


def test_a_governed_success_tells_a_table_granular_client_to_clear_three_funding_entries() -> None:
    server, agent = connect("A2")
    slots = learn_funding(server, agent)
    learn(server, agent, CODE, GOVERNED)
    play(server, BENIGN)
    success = server.handle(GOVERNED.merged(agent.recall(CODE)[0].parameters))
    assert success.ok
    step = agent.receive(success)
    assert step is not None
    assert [entry.slot for entry in step.evicted] == slots
    assert step.restamps == ()
    assert step.alerts == ("table recommended_credit_token",)
    assert len(agent.memory) == 1


def test_a_row_granular_client_restamps_the_same_three_and_evicts_none() -> None:
    server, agent = connect("A2D")
    slots = learn_funding(server, agent)
    play(server, BENIGN)
    step = agent.receive(server.handle(PLAIN))
    assert step is not None
    assert step.evicted == ()
    assert [[entry.slot for entry in operation] for operation in step.restamps] == [slots]
    assert all(entry.stamps == {"recommended_credit_token": "1.0.1"} for entry in agent.memory)


def test_a_change_is_noticed_once() -> None:
    server, agent = connect("A2D")
    learn(server, agent, CODE, GOVERNED)
    play(server, ROTATION)
    step = agent.receive(server.handle(PLAIN))
    assert step is not None
    assert [entry.slot for entry in step.evicted] == [CODE]
    assert agent.receive(server.handle(PLAIN)) is None


def test_two_reloads_between_observations_evict_what_only_the_first_one_changed() -> None:
    server, agent = connect("A2D")
    learn(server, agent, CODE, GOVERNED)
    play(server, ROTATION)
    play(server, Edit("active_csm_codes"))  # the last diff, and the only one told, is empty
    step = agent.receive(server.handle(PLAIN))
    assert step is not None
    assert [entry.slot for entry in step.evicted] == [CODE]


@pytest.mark.parametrize("name", STORING)
def test_a_quiet_world_moves_nothing(name: str) -> None:
    server, agent = connect(name)
    learn(server, agent, CODE, GOVERNED)
    before = agent.memory
    assert agent.receive(server.handle(PLAIN)) is None
    assert agent.receive(server.handle(GOVERNED)) is None
    assert list(agent.memory) == list(before)


def test_the_first_response_is_no_change_of_any_table() -> None:
    for name in STORING:
        server, agent = connect(name)
        play(server, ROTATION)
        assert agent.receive(server.handle(PLAIN)) is None


def test_plain_text_moves_nothing_and_forgets_nothing() -> None:
    server, agent = connect("A2DRC")
    learn(server, agent, CODE, GOVERNED)
    assert agent.receive(Response(ok=False, error="no")) is None
    assert agent.memory.versions == server.world.versions


def test_a_fingerprint_missing_from_one_response_does_not_hide_a_rule_change() -> None:
    server, agent = connect("A2DR")
    learn(server, agent, CODE, GOVERNED)
    agent.receive(Response(ok=True, table_versions=server.world.versions))
    play(server, Withdraw(("token_funding_map", "recommended_credit_token", "replaced_by")))
    step = agent.receive(server.handle(PLAIN))
    assert step is not None
    assert step.alerts == ("rules",)


# What is asked of the server ----------------------------------------------------------------------------------------


class Counting:
    """An upstream that counts what it is asked."""

    def __init__(self, server: Server) -> None:
        self.server, self.asked = server, []

    @property
    def rule_log(self) -> list:
        self.asked.append("rules")
        return self.server.rule_log

    def last_reload(self, table: str) -> object:
        self.asked.append(table)
        return self.server.last_reload(table)


@pytest.mark.parametrize("arm", [get_arm(name) for name in arm_names()], ids=arm_names())
def test_an_arm_asks_only_for_what_it_wants(arm: Arm) -> None:
    server = Server(load_domain("acme").world())
    upstream = Counting(server)
    agent = Agent(arm, upstream)  # type: ignore[arg-type]
    agent.receive(server.handle(PLAIN))
    play(server, ROTATION)
    agent.receive(server.handle(PLAIN))
    assert ("active_csm_codes" in upstream.asked) == ("reloads" in arm.wants)
    assert ("rules" in upstream.asked) == ("rules" in arm.wants)
    assert set(upstream.asked) <= {"active_csm_codes", "rules"}


def test_the_oracle_reads_each_declaration_once_even_on_a_quiet_success() -> None:
    server, agent = connect("A2DO")
    learn(server, agent, CODE, GOVERNED)
    server.declare_rule(Rule("required_promo_policy", "active_csm_codes", "settles_under"))
    step = agent.receive(server.handle(PLAIN))
    assert step is not None
    assert [entry.slot for entry in step.evicted] == [CODE]
    assert agent.receive(server.handle(PLAIN)) is None
