"""Versions never disagree with the server, over more than 10^5 episodes of random drift; and a wrong arm is caught.

Nothing here is subject to chance: one disagreement in any episode fails the test.
"""

from dataclasses import replace

from invsim.client.arms import Arm, arm_names, get_arm
from invsim.client.memory import Memory, Step
from invsim.client.planners import Behaviour, ProbabilisticModel, RetryLaw
from invsim.sim.engine import simulate_block
from invsim.sim.generate import random_scenario
from invsim.sim.plan import compile_plan

NOISY = ProbabilisticModel(
    "noisy", Behaviour(0.8, 0.4, 0.7, 0.1, 0.3, RetryLaw.geometric(0.6), RetryLaw.geometric(0.5))
)


def failures(arms: list[Arm], *, scenarios: int, streams: int, events: int = 6) -> tuple[int, int]:
    """Return episodes simulated and contract failures."""
    episodes = found = 0
    for seed in range(scenarios):
        plan = compile_plan(random_scenario(seed, events=events))
        for arm in arms:
            block = simulate_block(plan, arm=arm, model=NOISY, seed=seed, first=0, count=streams)
            episodes += block.first_try.size
            found += int(block.stream("contract_failures").sum())
    return episodes, found


def test_no_version_check_disagrees_with_the_server(ledger) -> None:
    arms = [get_arm(name) for name in arm_names() if get_arm(name).checks_versions]
    assert len(arms) == 7
    episodes, found = failures(arms, scenarios=200, streams=2)
    ledger.check("episodes of random drift", episodes, low=100_000)
    ledger.check("contract failures among them", found, high=0)


def trust_the_last_diff(memory: Memory, message) -> Step:
    """Restamp whatever the last diff does not name, however old the entry's stamp is."""
    diffs = {table: set(report.diff.keys) for table, report in message.reloads.items()}
    gone = tuple(e for e in memory if any(e.slot.key in diffs.get(table, ()) for table in e.stamps))
    versions = message.response.table_versions
    return Step(memory.mapped(lambda e: None if e in gone else e.restamped(versions)), gone)


def test_an_arm_that_trusts_the_last_diff_across_a_gap_is_caught(ledger) -> None:
    careless = replace(get_arm("A2D"), name="careless", on_tables=trust_the_last_diff)
    _, found = failures([careless], scenarios=200, streams=2, events=60)
    ledger.check("negative control: contract failures of an arm that trusts the last diff", found, low=1)


def test_an_arm_that_ignores_the_stamps_is_caught() -> None:
    blind = replace(get_arm("A1"), name="blind", checks_versions=True)
    _, found = failures([blind], scenarios=20, streams=1)
    assert found > 0
