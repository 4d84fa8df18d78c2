"""The engine on the shipped scenarios: counts that the paper's integers force, and whole event logs."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from invsim.client.arms import Arm, arm_names, get_arm
from invsim.client.planners import (
    Action,
    Behaviour,
    ComplianceModel,
    NoCall,
    ProbabilisticModel,
    RetryLaw,
    Situation,
    load_model,
)
from invsim.errors import InputError, PlannerError
from invsim.located import Source
from invsim.sim.engine import rerun, simulate_block
from invsim.sim.events import Attempted, Committed, DriftApplied, EpisodeEnded, Evicted, to_lines
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.result import Block
from invsim.sim.scenario import load_scenario, parse_scenario
from invsim.world.server import Server
from invsim.world.wire import Level, Request, Response

GOLDEN = Path(__file__).parents[1] / "golden"
COMPLIANT = load_model("compliant")
STALE_FIRST = load_model("compliant-stale")
NOISY = ProbabilisticModel(
    "noisy",
    Behaviour(0.8, 0.4, 0.7, 0.1, 0.3, RetryLaw.geometric(0.6), RetryLaw.geometric(0.5)),
)


def plan_of(name: str, level: Level | None = None) -> Plan:
    return compile_plan(load_scenario(name), level=level)


def one(plan: Plan, arm: str, model: ComplianceModel) -> Block:
    return simulate_block(plan, arm=get_arm(arm), model=model, seed=7, first=0, count=1)


def retries(plan: Plan, block: Block) -> int:
    return int(block.episode("attempts").sum()) - len(plan.episodes)


def by_episode(block: Block, name: str) -> dict[int, int]:
    counts = block.episode(name)[0]
    return {int(at): int(counts[at]) for at in np.flatnonzero(counts)}


@pytest.mark.parametrize(
    ("arm", "model", "expected"),
    [("A0", COMPLIANT, 27), ("A1", STALE_FIRST, 14), ("A1", COMPLIANT, 7), ("A2", COMPLIANT, 9), ("A2D", COMPLIANT, 7)],
)
def test_retries_of_a_compliant_client_on_the_payments_stream(arm: str, model: ComplianceModel, expected: int) -> None:
    plan = plan_of("payments")
    assert retries(plan, one(plan, arm, model)) == expected


def test_table_granularity_evicts_one_entry_at_the_rotation_and_three_at_the_benign_bump() -> None:
    block = one(plan_of("payments"), "A2", COMPLIANT)
    assert by_episode(block, "evicted") == {12: 1, 24: 3}
    assert by_episode(block, "restamped") == {}


@pytest.mark.parametrize("arm", ["A2D", "A2DC", "A2DG", "A2DR", "A2DRC", "A2DO"])
def test_row_granularity_evicts_the_row_that_rotated_and_restamps_three_at_the_bump(arm: str) -> None:
    block = one(plan_of("payments"), arm, COMPLIANT)
    assert by_episode(block, "evicted") == {12: 1}
    assert by_episode(block, "restamped") == {24: 3}


def test_oracles_judge_evictions_on_the_payments_stream() -> None:
    plan = plan_of("payments")
    figures = {}
    for arm in ("A1", "A2", "A2D"):
        block = one(plan, arm, COMPLIANT)
        names = ("evicted_right_by_row", "required_by_row", "evicted_right_by_table", "required_by_table")
        figures[arm] = tuple(int(block.stream(name)[0]) for name in names)
    # One row really changed; a cleared-table oracle would have wanted the three republished entries gone too.
    assert figures == {"A1": (0, 1, 0, 4), "A2": (1, 1, 4, 4), "A2D": (1, 1, 1, 4)}


@pytest.mark.parametrize(
    ("arm", "first_try", "retried", "evicted", "restamped", "alerts", "attempts"),
    [
        ("A2D", 30, 6, {}, {}, [-1, -1], 42),
        ("A2DC", 28, 8, {13: 2}, {25: 3}, [13, 25], 44),
        ("A2DR", 22, 14, {12: 4, 24: 5}, {}, [12, 24], 50),
        ("A2DRC", 28, 8, {13: 2}, {25: 3}, [12, 24], 44),
        ("A2DO", 27, 9, {12: 2, 24: 1}, {24: 3}, [12, 24], 45),
    ],
)
def test_rule_stream(
    arm: str,
    first_try: int,
    retried: int,
    evicted: dict[int, int],
    restamped: dict[int, int],
    alerts: list[int],
    attempts: int,
) -> None:
    plan = plan_of("rules")
    block = one(plan, arm, COMPLIANT)
    assert int(block.first_try.sum()) == first_try
    assert retries(plan, block) == retried
    assert by_episode(block, "evicted") == evicted
    assert by_episode(block, "restamped") == restamped
    assert block.alerts[0].tolist() == alerts
    assert int(block.episode("attempts").sum()) == attempts


@pytest.mark.parametrize("model", [COMPLIANT, NOISY, load_model("claude-sonnet-4-6")], ids=lambda model: model.name)
def test_without_drift_all_memory_arms_are_identical(model: ComplianceModel) -> None:
    plan = plan_of("control")
    arms = [name for name in arm_names() if get_arm(name).stores]
    blocks = [simulate_block(plan, arm=get_arm(arm), model=model, seed=3, first=0, count=40) for arm in arms]
    for block in blocks[1:]:
        np.testing.assert_array_equal(block.episodes, blocks[0].episodes)
        np.testing.assert_array_equal(block.streams, blocks[0].streams)


def test_frequency_study_leaves_nine_seven_and_five_eligible_episodes() -> None:
    assert [int(plan_of(f"frequency-{r}").eligible.sum()) for r in (1, 2, 3)] == [9, 7, 5]
    # Each rotation costs a compliant row-granular client exactly one retry.
    counts = [retries(plan_of(f"frequency-{r}"), one(plan_of(f"frequency-{r}"), "A2D", COMPLIANT)) for r in (1, 2, 3)]
    assert counts == [7, 8, 9]


def test_golden_event_log() -> None:
    plan = plan_of("payments")
    text = b"".join(
        to_lines(rerun(plan, arm=get_arm(arm), model=STALE_FIRST, seed=1, stream=0), stream=0, arm=arm)
        for arm in ("A1", "A2", "A2D")
    )
    assert text == (GOLDEN / "payments-compliant-stale.jsonl").read_bytes()


def test_log_tells_the_rotation_in_order() -> None:
    log = rerun(plan_of("payments"), arm=get_arm("A2D"), model=COMPLIANT, seed=1, stream=0)
    at = next(index for index, event in enumerate(log) if isinstance(event, DriftApplied))
    kinds = [type(event).__name__ for event in log[at : at + 9]]
    assert kinds == [
        "DriftApplied",
        "EpisodeStarted",
        "Attempted",
        "Noticed",
        "Evicted",  # evict first ...
        "Attempted",
        "Committed",  # ... and only when the episode completes, commit
        "EpisodeEnded",
        "EpisodeStarted",
    ]
    stale, retry = (event for event in log[at : at + 9] if isinstance(event, Attempted))
    assert (stale.action, stale.ok, stale.request["promo_code"]) == ("apply_stale", False, "SUMMERSALE25")
    assert (retry.action, retry.ok, retry.request["promo_code"]) == ("apply", True, "WINTERLAUNCH26")


def test_a_success_can_tell_of_drift() -> None:
    log = rerun(plan_of("payments"), arm=get_arm("A2"), model=COMPLIANT, seed=1, stream=0)
    at = next(i for i, event in enumerate(log) if isinstance(event, Evicted) and event.episode == 24)
    attempt = next(event for event in reversed(log[:at]) if isinstance(event, Attempted))
    assert attempt.ok
    assert attempt.episode == 24
    evicted = log[at]
    assert isinstance(evicted, Evicted)
    assert {family for family, _, _ in evicted.entries} == {"USE_REQUIRED_FUNDING_TYPE"}


def test_an_exhausted_episode_commits_nothing() -> None:
    hopeless = ProbabilisticModel(
        "hopeless", Behaviour(retry=RetryLaw.geometric(0.0), retry_injected=RetryLaw.geometric(0.0))
    )
    log = rerun(plan_of("payments"), arm=get_arm("A2D"), model=hopeless, seed=1, stream=0)
    ends = [event for event in log if isinstance(event, EpisodeEnded)]
    assert {event.attempts for event in ends if not event.completed} == {5}
    assert not [event for event in log if isinstance(event, Committed)]


def test_events_file_lines_are_json(tmp_path: Path) -> None:
    log = rerun(plan_of("rules"), arm=get_arm("A2DO"), model=COMPLIANT, seed=1, stream=0)
    lines = [msgspec.json.decode(line) for line in to_lines(log, stream=0, arm="A2DO").splitlines()]
    assert len(lines) == len(log)
    ticks = [line["tick"] for line in lines]
    assert ticks == sorted(ticks)


@pytest.mark.parametrize("arm", arm_names())
def test_same_seed_same_bits_whatever_the_blocks(arm: str) -> None:
    plan = plan_of("payments")
    whole = simulate_block(plan, arm=get_arm(arm), model=NOISY, seed=11, first=0, count=12)
    for first, count in [(0, 5), (5, 1), (6, 6), (11, 1)]:
        part = simulate_block(plan, arm=get_arm(arm), model=NOISY, seed=11, first=first, count=count)
        np.testing.assert_array_equal(part.episodes, whole.episodes[first : first + count])
        np.testing.assert_array_equal(part.streams, whole.streams[first : first + count])
        np.testing.assert_array_equal(part.alerts, whole.alerts[first : first + count])


def test_rerun_gives_the_stream_of_the_block_again() -> None:
    plan = plan_of("payments")
    block = simulate_block(plan, arm=get_arm("A1"), model=NOISY, seed=11, first=0, count=6)
    ends = [
        event
        for event in rerun(plan, arm=get_arm("A1"), model=NOISY, seed=11, stream=4)
        if isinstance(event, EpisodeEnded)
    ]
    assert [event.attempts for event in ends] == block.episode("attempts")[4].tolist()
    assert [event.completed for event in ends] == block.episode("completed")[4].astype(bool).tolist()


def test_common_random_numbers_make_arms_comparable() -> None:
    plan = plan_of("payments")
    blocks = {
        arm: simulate_block(plan, arm=get_arm(arm), model=NOISY, seed=5, first=0, count=600) for arm in ("A1", "A2D")
    }
    totals = {arm: block.episode("attempts").sum(axis=1) for arm, block in blocks.items()}
    paired = np.var(totals["A1"] - totals["A2D"])
    assert paired < np.var(totals["A1"]) + np.var(totals["A2D"])


def test_plain_text_errors_leave_nothing_to_cache_but_can_be_recovered_from() -> None:
    plan = plan_of("payments", Level.L0)
    block = one(plan, "A2D", COMPLIANT)
    assert retries(plan, block) == 27
    assert int(block.episode("completed").sum()) == 36
    assert int(block.episode("injected").sum()) == 0


def test_rule_arms_see_nothing_below_their_level() -> None:
    counts = {}
    for level in (Level.L1, Level.L4, Level.L6):
        plan = plan_of("rules", level)
        counts[level.name] = {arm: by_episode(one(plan, arm, COMPLIANT), "evicted") for arm in ("A2DC", "A2DR")}
    assert counts["L1"] == {"A2DC": {}, "A2DR": {}}
    assert counts["L4"] == {"A2DC": {13: 2}, "A2DR": {}}
    assert counts["L6"] == {"A2DC": {13: 2}, "A2DR": {12: 4, 24: 5}}


class TenLines(ComplianceModel):
    """A user's model: applies what it holds, sends the right request itself on every second retry."""

    name = "ten-lines"

    def decide(self, situation: Situation, u: float) -> Action:
        if situation.attempt == 1:
            return Action.APPLY if situation.injected == 1 else Action.IGNORE
        return Action.SOLVE if situation.attempt % 2 else Action.IGNORE


def test_a_users_model_in_ten_lines() -> None:
    plan = plan_of("payments")
    block = one(plan, "A2D", TenLines())
    failed = block.episode("attempts")[0] > 1
    assert set(block.episode("attempts")[0][failed].tolist()) == {3}
    assert retries(plan, block) == 2 * 7


def test_a_users_arm_needs_no_change_to_the_engine() -> None:
    from invsim.client.memory import Memory, Step

    def forget_everything(memory, message):
        return Step(Memory(versions=memory.versions), tuple(memory))

    arm = Arm("FORGETS", "clears the store on any table change", on_tables=forget_everything, checks_versions=True)
    block = simulate_block(plan_of("payments"), arm=arm, model=COMPLIANT, seed=1, first=0, count=1)
    assert by_episode(block, "evicted") == {12: 4, 24: 5}


class Claims(ComplianceModel):
    name = "claims"

    def decide(self, situation: Situation, u: float) -> Action:
        return Action.APPLY


def test_applying_a_fix_that_is_not_there_is_said_plainly() -> None:
    with pytest.raises(PlannerError, match=r"'claims' answered APPLY in episode 0, where no valid fix is injected"):
        one(plan_of("payments"), "A2D", Claims())


def test_drift_in_the_middle_of_an_episode_meets_the_next_attempt() -> None:
    text = load_scenario("payments").source.text
    text = text.replace("after_episode = 11", "at_tick = 1", 1)
    scenario = parse_scenario(Source("middle.toml", text))
    log = rerun(compile_plan(scenario), arm=get_arm("A2D"), model=COMPLIANT, seed=1, stream=0)
    attempts = [event for event in log if isinstance(event, Attempted) and event.episode == 0]
    # Tick 0: a cold failure, told SUMMERSALE25. The code rotates before tick 1, where that fix fails.
    assert [(event.tick, event.ok, event.request.get("promo_code")) for event in attempts] == [
        (0, False, None),
        (1, False, "SUMMERSALE25"),
        (2, True, "WINTERLAUNCH26"),
    ]
    committed = next(event for event in log if isinstance(event, Committed))
    assert "WINTERLAUNCH26" in committed.entry[2]


def test_events_at_tick_zero_all_precede_the_first_attempt() -> None:
    edits = "".join(
        f'[[drift]]\nat_tick = 0\nedit = "active_csm_codes"\nput = {{ plan_partner_growth = {{ code = "{code}" }} }}\n'
        for code in ("WINTERLAUNCH26", "AUTUMNCORE26")
    )
    text = load_scenario("control").source.text.replace("[eligibility]", edits + "[eligibility]")
    plan = compile_plan(parse_scenario(Source("early.toml", text)))
    log = rerun(plan, arm=get_arm("A2D"), model=COMPLIANT, seed=1, stream=0)
    assert [type(event).__name__ for event in log[:4]] == [
        "DriftApplied",
        "DriftApplied",
        "EpisodeStarted",
        "Attempted",
    ]
    # What happened before the client's first response is nothing that it could notice.
    assert one(plan, "A2D", COMPLIANT).alerts[0].tolist() == [-1, -1]


MULTIPLE = """
name = "multiple"
domain = "acme"
stream = "G G G"
[tasks.G]
class = "governed"
family = "ADD_ACTIVE_PROMO_CODE"
key = "plan_partner_growth"
request = { plan = "plan_partner_growth", amount = 49.001 }
"""


def test_a_fix_is_judged_by_its_own_policy_and_kept_when_another_is_broken() -> None:
    plan = compile_plan(parse_scenario(Source("multiple.toml", MULTIPLE)))
    log = rerun(plan, arm=get_arm("A2D"), model=COMPLIANT, seed=1, stream=0)
    second = [event for event in log if isinstance(event, Attempted) and event.episode == 1]
    # The code from memory is right; the amount, whose fix may not be stored, costs the one retry that it costs anyway.
    assert [(event.action, event.ok) for event in second] == [("apply", False), ("apply", True)]
    assert second[1].request == {"plan": "plan_partner_growth", "amount": 49.0, "promo_code": "SUMMERSALE25"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('key = "plan_partner_growth"', 'key = "plan_partner_grwth"', "line 8, tasks.G.key: key must be what"),
        ("ADD_ACTIVE_PROMO_CODE", "USE_REQUIRED_FUNDING_TYPE", "tasks.G.key: key must be what"),
    ],
)  # fmt: skip
def test_a_task_whose_fix_would_be_filed_under_nonsense_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compile_plan(parse_scenario(Source("multiple.toml", MULTIPLE.replace(old, new, 1))))


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("amount = 49.001", 'promo_code = "SUMMERSALE25"', "never breaks the policy"),
        ("ADD_ACTIVE_PROMO_CODE", "ROUND_AMOUNT", "may not be stored"),
    ],
)
def test_a_task_that_has_nothing_to_learn_is_noted(old: str, new: str, note: str) -> None:
    (found,) = compile_plan(parse_scenario(Source("multiple.toml", MULTIPLE.replace(old, new, 1)))).notes
    assert note in found
    assert compile_plan(load_scenario("payments")).notes == ()


def test_a_watcher_is_told_of_every_attempt_with_what_was_injected_and_whether_it_was_right() -> None:
    plan, told = compile_plan(load_scenario("payments")), []
    block = simulate_block(
        plan, arm=get_arm("A1"), model=load_model("compliant-stale"), seed=1, first=3, count=2, watch=told.append
    )
    assert len(told) == block.episode("attempts").sum()
    assert {each.stream for each in told} == {3, 4}
    assert [each.episode for each in told if each.last and each.stream == 3] == list(range(36))
    after = next(each for each in told if each.episode == 15)
    assert (after.injected.name, after.valid) == ("CONFLICT", (False, True))
    assert after.request is not None
    assert not after.response.ok


class Mute(ComplianceModel):
    """Says nothing that a request could be made of."""

    name = "mute"

    def decide(self, situation: Situation, u: float) -> NoCall:
        return NoCall("no JSON object in the answer")


def test_an_answer_without_a_request_spends_attempts_and_reaches_no_server() -> None:
    plan, told = compile_plan(load_scenario("payments")), []

    class Deaf(Server):
        def handle(self, request: Request) -> Response:
            raise AssertionError(request)

    block = simulate_block(
        plan, arm=get_arm("A2DO"), model=Mute(), seed=1, first=0, count=1, connect=Deaf, watch=told.append
    )
    assert block.episode("attempts").sum() == 36 * 5
    assert not block.episode("completed").any()
    assert {(each.request, each.response.error) for each in told} == {(None, "no JSON object in the answer")}
    log = rerun(plan, arm=get_arm("A2"), model=Mute(), seed=1, stream=0)
    assert {(each.action, str(each.request)) for each in log if isinstance(each, Attempted)} == {("nocall", "{}")}
