"""What planners do: the probabilistic model draw by draw, the scripted one, and one of a user's own."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.client.agent import Agent
from invsim.client.arms import get_arm
from invsim.client.memory import Slot
from invsim.client.planners import (
    Action,
    Behaviour,
    ComplianceModel,
    Injected,
    Outcome,
    ProbabilisticModel,
    RetryLaw,
    ScriptedModel,
    Situation,
    base,
)
from invsim.errors import PlannerError
from invsim.world import Request, Server, Shape, load_domain

TASK = Request({"plan": "plan_partner_growth", "amount": 49.0})
SLOT = Slot("ADD_ACTIVE_PROMO_CODE", "plan_partner_growth")
IGNORE, APPLY, APPLY_STALE, SOLVE = Action.IGNORE, Action.APPLY, Action.APPLY_STALE, Action.SOLVE
draws = st.floats(0.0, 1.0, exclude_max=True)
rates = st.floats(0.0, 1.0)


def situation(injected: Injected = Injected.NOTHING, attempt: int = 1, **changes: object) -> Situation:
    fields: dict = {
        "episode": 0,
        "constraint": "governed",
        "shape": Shape.ADD,
        "injected": injected,
        "attempt": attempt,
        "first_occurrence": False,
        "request": TASK,
        "entries": (),
        "response": None,
    }
    return Situation(**(fields | changes))


# The probabilistic model --------------------------------------------------------------------------------------------


def model(**rates: object) -> ProbabilisticModel:
    return ProbabilisticModel("m", Behaviour(**rates))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("injected", "below", "above"),
    [
        (Injected.VALID, APPLY, IGNORE),
        (Injected.CONFLICT, APPLY, APPLY_STALE),
        (Injected.NOTHING, SOLVE, IGNORE),
    ],
)
def test_a_first_try_succeeds_exactly_when_the_draw_is_below_its_rate(
    injected: Injected, below: Action, above: Action
) -> None:
    planner = model(p_apply=0.6, p_fresh=0.6, p_unaided_repeat=0.6)
    assert planner.decide(situation(injected), 0.6 - 1e-9) is below
    assert planner.decide(situation(injected), 0.6) is above


def test_each_situation_has_a_rate_of_its_own() -> None:
    planner = model(p_apply=0.1, p_fresh=0.3, p_unaided_first=0.5, p_unaided_repeat=0.7)
    asked = {
        0.1: situation(Injected.VALID),
        0.3: situation(Injected.CONFLICT),
        0.5: situation(first_occurrence=True),
        0.7: situation(),
    }
    for rate, each in asked.items():
        assert planner.decide(each, rate - 1e-9) in {APPLY, SOLVE}
        assert planner.decide(each, rate) not in {APPLY, SOLVE}


@given(rates, rates, draws)
def test_a_stale_fix_alone_is_applied_with_p_stale_and_what_is_left_may_solve(
    p_stale: float, p_unaided: float, u: float
) -> None:
    action = model(p_stale=p_stale, p_unaided_repeat=p_unaided).decide(situation(Injected.STALE), u)
    # One draw, three stretches: solved, ignored, misled.
    if u < (1 - p_stale) * p_unaided:
        assert action is SOLVE
    elif u < 1 - p_stale:
        assert action is IGNORE
    else:
        assert action is APPLY_STALE


@given(draws)
def test_certain_rates_leave_nothing_to_the_draw(u: float) -> None:
    assert model(p_stale=1.0).decide(situation(Injected.STALE), u) is APPLY_STALE
    assert model(p_stale=0.0, p_unaided_repeat=1.0).decide(situation(Injected.STALE), u) is SOLVE
    assert model(p_apply=1.0).decide(situation(Injected.VALID), u) is APPLY
    assert model(p_apply=0.0).decide(situation(Injected.VALID), u) is IGNORE


@given(draws)
def test_retries_share_one_draw_against_the_cumulative_law_so_recovery_lasts(u: float) -> None:
    law = RetryLaw.explicit((0.2, 0.3, 0.0, 0.25))
    actions = [model(retry=law).decide(situation(attempt=attempt), u) for attempt in (2, 3, 4, 5)]
    assert actions == [APPLY if u < within else IGNORE for within in (0.2, 0.5, 0.5, 0.75)]


def test_an_injected_fix_changes_the_retry_law() -> None:
    planner = model(retry=RetryLaw.geometric(1.0), retry_injected=RetryLaw.geometric(0.0))
    assert planner.decide(situation(Injected.NOTHING, attempt=2), 0.0) is APPLY
    for injected in (Injected.VALID, Injected.STALE, Injected.CONFLICT):
        assert planner.decide(situation(injected, attempt=2), 0.0) is IGNORE


def test_a_class_governs_before_a_shape_and_a_shape_before_the_default() -> None:
    never, always = Behaviour(p_apply=0.0), Behaviour(p_apply=1.0)
    planner = ProbabilisticModel("m", never, classes={"control": never}, shapes={"add-a-field": always})
    valid = Injected.VALID
    assert planner.decide(situation(valid), 0.5) is APPLY
    assert planner.decide(situation(valid, constraint="control"), 0.5) is IGNORE
    assert planner.decide(situation(valid, shape=Shape.REWRITE), 0.5) is IGNORE
    assert planner.decide(situation(valid, shape=None), 0.5) is IGNORE


# The scripted model -------------------------------------------------------------------------------------------------

FIRST, SECOND, NEVER = Outcome(True), Outcome(False, 2), Outcome(False, exhausted=True)


@pytest.mark.parametrize(
    ("outcome", "injected", "action"),
    [
        (FIRST, Injected.VALID, APPLY),
        (FIRST, Injected.CONFLICT, APPLY),
        (FIRST, Injected.STALE, SOLVE),
        (FIRST, Injected.NOTHING, SOLVE),
        (SECOND, Injected.VALID, IGNORE),
        (SECOND, Injected.CONFLICT, APPLY_STALE),
        (SECOND, Injected.STALE, APPLY_STALE),
        (SECOND, Injected.NOTHING, IGNORE),
    ],
)
def test_a_scripted_first_try_comes_out_as_written_whatever_is_injected(
    outcome: Outcome, injected: Injected, action: Action
) -> None:
    assert ScriptedModel("s", {0: outcome}).decide(situation(injected), 0.5) is action


def test_scripted_retries_are_counted_out() -> None:
    def retries(outcome: Outcome) -> list[Action]:
        planner = ScriptedModel("s", {0: outcome})
        return [planner.decide(situation(attempt=attempt), 0.5) for attempt in (2, 3, 4, 5)]  # type: ignore[misc]

    assert retries(Outcome(False, 1)) == [APPLY] * 4
    assert retries(SECOND) == [IGNORE, APPLY, APPLY, APPLY]
    assert retries(Outcome(False, 4)) == [IGNORE, IGNORE, IGNORE, APPLY]
    assert retries(NEVER) == [IGNORE] * 4


def test_an_episode_that_is_not_scripted_succeeds_at_once() -> None:
    planner = ScriptedModel("s", {})
    assert planner.decide(situation(Injected.VALID), 0.5) is APPLY
    assert planner.decide(situation(), 0.5) is SOLVE


@pytest.mark.parametrize(
    "impossible",
    [
        {"first_try": True, "retries": 1},
        {"first_try": True, "exhausted": True},
        {"first_try": False},
        {"first_try": False, "retries": 5},
        {"first_try": False, "retries": -1},
        {"first_try": False, "retries": 2, "exhausted": True},
    ],
)
def test_an_outcome_that_cannot_happen_is_refused(impossible: dict) -> None:
    with pytest.raises(PlannerError):
        Outcome(**impossible)


# A model of one's own -----------------------------------------------------------------------------------------------


def documented() -> type[ComplianceModel]:
    """The example in the interface's docstring, run as it stands."""
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(ComplianceModel, "ComplianceModel", module=base, globs=dict(vars(base)))
    result = doctest.DocTestRunner(verbose=False).run(example, clear_globs=False)
    assert (result.failed, result.attempted) == (0, len(example.examples))
    assert sum(each.source.count("\n") for each in example.examples) <= 10
    return example.globs["Keen"]


def test_the_documented_example_is_a_working_model_in_ten_lines() -> None:
    keen = documented()()
    assert keen.name == "keen"
    assert keen.decide(situation(Injected.VALID), 0.9) is APPLY
    assert keen.decide(situation(Injected.STALE), 0.9) is IGNORE
    recovered = [keen.decide(situation(attempt=attempt), 0.8) for attempt in (2, 3, 4, 5)]
    assert recovered == [IGNORE, IGNORE, APPLY, APPLY]  # 1/2 and 3/4 do not reach .8, 7/8 does
    assert keen.weight("governed", Shape.ADD) == 1.0
    assert keen.conflict_cost == 0.0


def test_a_model_may_send_a_request_of_its_own_and_learn_from_what_the_server_says() -> None:
    class Reader(ComplianceModel):
        name = "reader"

        def decide(self, situation: Situation, u: float) -> Action | Request:
            if situation.response is None:
                fixes = [entry.parameters for entry in situation.entries]
                return situation.request.merged(fixes[-1]) if fixes else situation.request
            return situation.request.merged(situation.response.suggestions[0].parameters)

    server = Server(load_domain("acme").world())
    agent, planner, attempts = Agent(get_arm("A2D"), server), Reader(), []
    for _ in range(2):
        now, response = situation(entries=agent.recall(SLOT)), None
        told = []
        for attempt in range(1, 6):
            now.attempt, now.response = attempt, response
            request = planner.decide(now, 0.5)
            response = server.handle(request)  # type: ignore[arg-type]
            agent.receive(response)
            told += response.suggestions
            if response.ok:
                attempts.append(attempt)
                agent.commit(SLOT, told, request)
                break
    assert attempts == [2, 1]


def test_a_model_without_decide_cannot_be_built() -> None:
    class Undecided(ComplianceModel):
        name = "undecided"

    with pytest.raises(TypeError, match="decide"):
        Undecided()  # type: ignore[abstract]
