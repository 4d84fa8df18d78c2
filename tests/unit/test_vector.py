"""The engine on arrays against the SimPy engine: the same numbers, stream by stream, and none of its code."""

import ast
import doctest
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import invsim.sim.vector.engine
from invsim.client.arms import Arm, arm_names, get_arm
from invsim.client.planners import Behaviour, ComplianceModel, ProbabilisticModel, RetryLaw, load_model
from invsim.errors import UnknownNameError
from invsim.experiment import run
from invsim.located import Source
from invsim.sim import engine
from invsim.sim.facts import NotTabularError, tabulate
from invsim.sim.plan import DriftEvent, Plan, compile_plan
from invsim.sim.result import Block
from invsim.sim.scenario import SHIPPED, load_scenario, parse_scenario, shipped_text
from invsim.sim.vector import Outcomes, VectorEngine, simulate_block, supports
from invsim.world.domain import parse_domain, register_domain
from invsim.world.drift import after
from invsim.world.server import ReloadReport, World
from invsim.world.tables import Row, Table
from invsim.world.wire import Level

ARMS = [get_arm(name) for name in arm_names()]
NOISY = ProbabilisticModel(
    "noisy",
    Behaviour(0.8, 0.4, 0.7, 0.1, 0.3, RetryLaw.geometric(0.6), RetryLaw.geometric(0.5)),
    {"governed": Behaviour(0.6, 0.3, 0.5, 0.2, 0.15, RetryLaw.geometric(0.4), RetryLaw.geometric(0.7))},
)
COMPLIANT = load_model("compliant")
PUBLISHED = [load_model(name) for name in ("gemini-3.5-flash", "deepseek-v4-flash", "gpt-5.4-mini")]
STREAMS = 4


def blocks(plan: Plan, arm: Arm, model: ComplianceModel, *, first: int = 5, count: int = STREAMS) -> list[Block]:
    return [
        engine.simulate_block(plan, arm=arm, model=model, seed=11, first=first, count=count),
        simulate_block(tabulate(plan), arm=arm, model=model, seed=11, first=first, count=count),
    ]


def assert_equal(expected: Block, found: Block, label: str) -> None:
    assert found.first == expected.first, label
    for part in ("episodes", "streams", "alerts"):
        left, right = getattr(expected, part), getattr(found, part)
        assert (right.dtype, right.shape) == (left.dtype, left.shape), label
        np.testing.assert_array_equal(right, left, err_msg=f"{label}: {part}")


def assert_engines_agree(
    plan: Plan, models: Iterable[ProbabilisticModel], arms: Iterable[Arm] = ARMS, *, count: int = STREAMS
) -> dict[str, Block]:
    """Compare both engines, and return the blocks of the last model."""
    facts, found = tabulate(plan), {}
    for model in models:
        vector = VectorEngine(facts, model)
        drawn = vector.draw(seed=11, first=5, count=count)
        for arm in arms:
            block = engine.simulate_block(plan, arm=arm, model=model, seed=11, first=5, count=count)
            assert_equal(block, vector.play(arm, drawn).block(), f"{plan.name}, {model.name}, {arm.name}")
            found[arm.name] = block
    return found


# Shipped scenarios ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_scenario_under_every_arm_and_several_models(name: str) -> None:
    assert_engines_agree(compile_plan(load_scenario(name)), [NOISY, COMPLIANT, *PUBLISHED])


@pytest.mark.parametrize("level", [Level.L0, Level.L1, Level.L4, Level.L5])
@pytest.mark.parametrize("name", ["payments", "rules", "recipes"])
def test_every_wire_level(name: str, level: Level) -> None:
    assert_engines_agree(compile_plan(load_scenario(name), level=level), [NOISY])


# Drift that is hard ---------------------------------------------------------------------------------------------------


def drifted(*events: str, name: str = "payments") -> Plan:
    """The shipped stream with other drift."""
    text = shipped_text(name)
    start, end = text.index("[[drift]]"), text.index("[eligibility]")
    return compile_plan(parse_scenario(Source("drifted.toml", text[:start] + "\n".join(events) + "\n" + text[end:])))


def edit(when: str, code: str) -> str:
    put = f'{{ plan_partner_growth = {{ code = "{code}" }} }}'
    return f'[[drift]]\n{when}\nedit = "active_csm_codes"\nput = {put}\n'


def republish(when: str, table: str = "active_csm_codes") -> str:
    return f'[[drift]]\n{when}\nrepublish = "{table}"\n'


def test_a_gap_in_the_chain_of_diffs_evicts_what_the_last_diff_does_not_name() -> None:
    gap = drifted(*[republish("after_episode = 23", "recommended_credit_token")] * 2)
    chained = drifted(republish("after_episode = 23", "recommended_credit_token"))
    evicted = [
        assert_engines_agree(plan, [COMPLIANT], [get_arm("A2D")])["A2D"].episode("evicted").sum(axis=1).tolist()
        for plan in (gap, chained)
    ]
    assert evicted == [[3] * STREAMS, [0] * STREAMS]
    assert_engines_agree(gap, [NOISY])


def test_drift_before_the_first_episode_and_after_the_last() -> None:
    early = [republish("at_tick = 0"), edit("at_tick = 0", "AUTUMNCORE26"), edit("at_tick = 0", "WINTERLAUNCH26")]
    late = [edit("after_episode = 35", "SPRINGBOOST26"), edit("at_tick = 358", "AUTUMNCORE26")]
    found = assert_engines_agree(drifted(*early, *late), [NOISY, COMPLIANT])
    assert found["A1"].stream("required_by_row").tolist() == [1] * STREAMS
    assert found["A2D"].alerts.max() == -1


def test_a_rule_that_comes_and_goes_between_two_episodes() -> None:
    rule = '{ from = "active_csm_codes", to = "promo_eligibility", relation = "again" }'
    events = [f"[[drift]]\nafter_episode = 14\n{what} = {rule}\n" for what in ("declare_rule", "remove_rule")]
    events += [republish("after_episode = 14"), f"[[drift]]\nafter_episode = 20\ndeclare_rule = {rule}\n"]
    assert_engines_agree(drifted(*events), [NOISY])


def test_an_append_only_store_with_many_stale_fixes_of_one_key() -> None:
    codes = ["WINTERLAUNCH26", "SPRINGBOOST26", "SUMMERSALE25", "AUTUMNCORE26"]
    events = [edit(f"after_episode = {at}", codes[at % 4]) for at in range(34)]
    found = assert_engines_agree(drifted(*events), [NOISY, COMPLIANT], count=8)
    assert found["A1"].episode("injected_entries").max() >= 8


DEPOT = """
name = "unit-depot"

[tables.zones.rows]
oslo = { zone = "north" }

[tables.lanes.rows]
north = { open = "yes" }
west = { open = "yes" }
south = { open = "no" }

[tables.carriers.rows]
oslo = { carrier = "swift" }

[tables.docks.rows]
oslo = { dock = "d1" }

[tables.gates.rows]
oslo = { gate = "g1" }

[[rules]]
from = "zones"
to = "carriers"
relation = "serves"

[[rules]]
from = "carriers"
to = "docks"
relation = "loads_at"

[[rules]]
from = "docks"
to = "gates"
relation = "opens"

[[policies]]
kind = "lookup"
type = "SET_ZONE"
shape = "add-a-field"
table = "zones"
key = "site"
column = "zone"
field = "zone"
message = "the site lies in another zone"

[[policies]]
kind = "lookup"
type = "SET_CARRIER"
shape = "add-a-field"
table = "carriers"
key = "site"
column = "carrier"
field = "carrier"
message = "another carrier serves the site"
when = [{ table = "lanes", key = "zone", column = "open", equals = "yes" }]

[[policies]]
kind = "lookup"
type = "SET_DOCK"
shape = "rewrite-a-value"
table = "docks"
key = "site"
column = "dock"
field = "dock"
message = "the site loads at another dock"

[[policies]]
kind = "lookup"
type = "SET_GATE"
shape = "rewrite-a-value"
table = "gates"
key = "site"
column = "gate"
field = "gate"
message = "the site has another gate"

[[policies]]
kind = "multiple"
type = "ROUND_WEIGHT"
field = "weight"
unit = "0.5"
message = "weights are in halves"
"""

TASKS = """
name = "depot"
domain = "unit-depot"

[tasks.Z]
class = "zone"
family = "SET_ZONE"
key = "oslo"
request = { site = "oslo", dock = "d1", gate = "g1" }

[tasks.C]
class = "carrier"
family = "SET_CARRIER"
key = "oslo"
request = { site = "oslo", zone = "north", dock = "d1", gate = "g1" }

[tasks.D]
class = "dock"
family = "SET_DOCK"
key = "oslo"
request = { site = "oslo", zone = "north", carrier = "swift", dock = "d9", gate = "g1" }

[tasks.G]
class = "gate"
family = "SET_GATE"
key = "oslo"
request = { site = "oslo", zone = "north", carrier = "swift", dock = "d1", gate = "g9" }

[tasks.W]
class = "weight"
family = "ROUND_WEIGHT"
key = "oslo"
request = { site = "nowhere", weight = 1.3 }
"""


def depot(stream: str, *events: str) -> Plan:
    register_domain(parse_domain(Source("unit-depot.toml", DEPOT)))
    return compile_plan(parse_scenario(Source("depot.toml", f'stream = "{stream}"\n{TASKS}' + "\n".join(events))))


def zone(after_episode: int, name: str) -> str:
    put = f'{{ oslo = {{ zone = "{name}" }} }}'
    return f'[[drift]]\nafter_episode = {after_episode}\nedit = "zones"\nput = {put}\n'


def test_an_evicted_row_notifies_the_entries_of_other_families_with_its_key() -> None:
    found = assert_engines_agree(depot("C D G W Z C D G W C D G", zone(3, "west")), [NOISY, COMPLIANT])
    evicted = {name: found[name].episode("evicted")[0, 4] for name in ("A2D", "A2DRC", "A2DC", "A2DG")}
    # The zone is upstream of the carrier only. The dock's entry goes because the carrier's does, then the gate's.
    assert evicted == {"A2D": 0, "A2DRC": 1, "A2DC": 3, "A2DG": 3}


def rule(after_episode: int, what: str, start: str, end: str, relation: str) -> str:
    body = f'{{ from = "{start}", to = "{end}", relation = "{relation}" }}'
    return f"[[drift]]\nafter_episode = {after_episode}\n{what} = {body}\n"


@pytest.mark.parametrize(
    "event",
    [
        rule(2, "remove_rule", "zones", "carriers", "serves"),
        rule(2, "declare_rule", "lanes", "carriers", "feeds"),
        rule(2, "declare_rule", "docks", "lanes", "blocks"),
    ],
)
def test_the_store_changes_between_the_attempts_of_an_episode(event: str) -> None:
    # Asked without a zone, the server speaks of the zone, and only then of the carrier.
    found = assert_engines_agree(depot("C D G Z Z Z C D Z", event), [NOISY], count=40)
    if "zones" in event:
        block = found["A2DC"]
        thrice = (block.episode("attempts")[:, 3] == 3) & (block.episode("evicted")[:, 3] == 1)
        assert 3 + 3 + 2 in block.episode("injected_entries")[thrice, 3]


def test_the_newest_of_several_stale_fixes_is_the_one_applied() -> None:
    # With the zone that has no open lane, the carrier is asked for one attempt later.
    drift = [zone(3, "south"), zone(7, "north"), zone(11, "west")]
    found = assert_engines_agree(depot("Z Z Z Z Z Z Z Z Z Z Z Z Z Z Z", *drift), [NOISY], [get_arm("A1")], count=60)
    stale = (found["A1"].episode("injected") == 3) & (found["A1"].episode("injected_entries") > 1)
    assert stale[:, 12:].sum() > 10


RECOGNISED = """
name = "recognised"
domain = "acme"
stream = "R R R R R R R R R R R R R R R R R R"

[tasks.R]
class = "recognised"
family = "USE_RECOGNISED_PROMO_CODE"
key = "plan_partner_growth"
request = { plan = "plan_partner_growth", promo_code = "NOSUCHCODE" }
"""


def test_two_right_fixes_of_one_key_may_lead_on_differently() -> None:
    # Any code that can be redeemed satisfies the policy; that the plan's own has rotated, another policy tells.
    codes = ["WINTERLAUNCH26", "SUMMERSALE25", "SPRINGBOOST26", "SUMMERSALE25"]
    drift = "".join(edit(f"after_episode = {4 * at + 3}", code) for at, code in enumerate(codes))
    plan = compile_plan(parse_scenario(Source("recognised.toml", RECOGNISED + drift)))
    found = assert_engines_agree(plan, [NOISY], count=60)
    several = (found["A1"].episode("injected") == 1) & (found["A1"].episode("injected_entries") > 1)
    assert several.sum() > 100
    assert (several & ~found["A1"].first_try).sum() > 50


@dataclass(frozen=True, eq=False)
class Stealth:
    """Rows change and the version does not: what no server does that keeps the contract."""

    table: str
    key: str
    row: Row

    def apply(self, world: World) -> tuple[World, ReloadReport]:
        old = world.tables[self.table]
        new, diff = old.reloaded({**old.rows, self.key: self.row})
        same = Table(old.name, new.rows, old.version)
        moved = World({**world.tables, old.name: same}, world.rules, world.policies, level=world.level)
        return moved, ReloadReport(replace(diff, new_version=old.version), ())


@pytest.mark.parametrize(("name", "episode"), [("payments", 12), ("rules", 13)])
def test_entries_that_contradict_the_server_are_counted_alike(name: str, episode: int) -> None:
    plan = compile_plan(load_scenario(name))
    operation = Stealth("active_csm_codes", "plan_partner_growth", {"code": "WINTERLAUNCH26"})
    events, world = [], plan.world
    for each in (operation, *(event.operation for event in plan.drift)):
        world, report = after(world, each)
        events.append(DriftEvent(10 * episode, episode - 1, each, report))
    found = assert_engines_agree(replace(plan, drift=tuple(events)), [NOISY, COMPLIANT], count=20)
    assert {name: set(found[name].stream("contract_failures").tolist()) for name in ("A2D", "A1")} == {
        "A2D": {1},
        "A1": {0},
    }


# Chunks and sums ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["A0", "A1", "A2DC"])
def test_blocks_do_not_depend_on_how_streams_are_cut(arm: str) -> None:
    plan = compile_plan(load_scenario("rules"))
    _, whole = blocks(plan, get_arm(arm), NOISY, first=3, count=300)
    parts = [blocks(plan, get_arm(arm), NOISY, first=first, count=count)[1] for first, count in ((3, 70), (73, 230))]
    for part in ("episodes", "streams", "alerts"):
        joined = np.concatenate([getattr(each, part) for each in parts])
        np.testing.assert_array_equal(joined, getattr(whole, part))


@pytest.mark.parametrize(
    ("name", "model"),
    [("payments", NOISY), ("rules", NOISY), ("payments", COMPLIANT), ("payments", PUBLISHED[0])],
    ids=lambda given: getattr(given, "name", given),
)
def test_estimates_are_those_of_the_other_engine_bit_for_bit(name: str, model: ProbabilisticModel) -> None:
    plan = compile_plan(load_scenario(name))
    expected = run(plan, model=model, arms=ARMS, replications=40, seed=5, engine="simpy")
    for chunk in (40, 7):
        found = run(plan, model=model, arms=ARMS, replications=40, seed=5, engine="vector", chunk=chunk)
        assert (found.engine, expected.engine) == ("vector", "simpy")
        assert found.arms == expected.arms


def columns(block: Block) -> dict[str, np.ndarray]:
    injected, attempts = block.episode("injected"), block.episode("attempts")
    valid = (injected == 1) & (block.episode("addressable") == 1)
    names = ("attempts", "completed", "addressable", "evicted", "restamped", "injected_entries")
    return {name: block.episode(name) for name in names} | {
        "first_try": block.first_try,
        "valid": valid,
        "valid_first_try": valid & block.first_try,
        "conflict_attempts": np.where(injected == 2, attempts, 0),
    }


@pytest.mark.parametrize("arm", ["A0", "A1", "A2D", "A2DC"])
@pytest.mark.parametrize("model", [NOISY, COMPLIANT], ids=lambda model: model.name)
def test_totals_are_sums_over_the_block(arm: str, model: ProbabilisticModel) -> None:
    plan = compile_plan(load_scenario("payments"))
    vector = VectorEngine(tabulate(plan), model)
    outcomes: Outcomes = vector.play(get_arm(arm), vector.draw(seed=2, first=0, count=50))
    masks = [np.ones(36, dtype=bool), np.zeros(36, dtype=bool), plan.eligible, plan.class_index == 1]
    for name, values in columns(outcomes.block()).items():
        for mask in masks:
            expected = values[:, mask].sum(axis=1)
            np.testing.assert_array_equal(np.broadcast_to(outcomes.total(name, mask), 50), expected, err_msg=name)


def test_the_baseline_has_the_attempts_of_the_arm_without_memory() -> None:
    plan = compile_plan(load_scenario("payments"))
    for model in (NOISY, COMPLIANT, *PUBLISHED):
        vector = VectorEngine(tabulate(plan), model)
        drawn = vector.draw(seed=2, first=0, count=50)
        expected = vector.play(get_arm("A0"), drawn).block().episode("attempts").sum(axis=1)
        np.testing.assert_array_equal(vector.attempts_without_memory(drawn), expected)


def test_an_observer_sees_the_blocks_of_the_other_engine() -> None:
    plan = compile_plan(load_scenario("payments"))
    seen: dict[str, list[tuple[str, Block]]] = {"simpy": [], "vector": []}
    for name, found in seen.items():
        arms = [get_arm("A0"), get_arm("A2D")]
        run(plan, model=NOISY, arms=arms, replications=12, chunk=5, engine=name,
            observe=lambda arm, block, found=found: found.append((arm.name, block)))  # fmt: skip
    assert [arm for arm, _ in seen["vector"]] == [arm for arm, _ in seen["simpy"]] == ["A0", "A2D"] * 3
    for (arm, found_block), (_, expected) in zip(seen["vector"], seen["simpy"], strict=True):
        assert_equal(expected, found_block, arm)


# What it does not do --------------------------------------------------------------------------------------------------


class Own(ProbabilisticModel):
    """A model that may decide otherwise."""


def test_an_arm_or_a_model_of_ones_own_is_refused_in_one_line() -> None:
    facts = tabulate(compile_plan(load_scenario("payments")))
    changed, own = replace(get_arm("A2D"), append=True), Own("mine")
    assert supports(get_arm("A2D"), NOISY)
    assert not supports(changed, NOISY)
    assert not supports(replace(changed, name="X"), NOISY)
    assert not supports(get_arm("A2D"), own)
    with pytest.raises(
        NotTabularError, match=r"^arm 'A2D' is not one of A0, A1, .*A2DO as shipped; only --engine simpy"
    ):
        simulate_block(facts, arm=changed, model=NOISY, seed=1, first=0, count=1)
    with pytest.raises(NotTabularError, match=r"^model 'mine' decides by code of its own.*; only --engine simpy"):
        simulate_block(facts, arm=get_arm("A2D"), model=own, seed=1, first=0, count=1)


def test_auto_takes_the_engine_that_can() -> None:
    between, within = drifted(republish("after_episode = 3")), drifted(republish("at_tick = 32"))
    for plan, model, expected in (
        (between, NOISY, "vector"),
        (within, NOISY, "simpy"),
        (between, Own("mine"), "simpy"),
    ):
        assert run(plan, model=model, arms=ARMS[:2], replications=2, engine="auto").engine == expected
    assert run(between, model=NOISY, arms=[replace(ARMS[3], name="X")], replications=2, engine="auto").engine == "simpy"
    with pytest.raises(NotTabularError, match="falls between the attempts of episode 3"):
        run(within, model=NOISY, replications=2, engine="vector")
    with pytest.raises(UnknownNameError, match="unknown engine 'gpu'"):
        run(between, model=NOISY, replications=2, engine="gpu")


FOLDER = Path(invsim.sim.vector.__file__).parent
FORBIDDEN = ("invsim.sim.engine", "invsim.sim.exact", "invsim.client.agent", "invsim.client.memory", "simpy")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_it_shares_no_code_with_the_client_or_the_other_engine(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    assert not [name for name in imported if name.startswith(FORBIDDEN)]
    assert {name for name in imported if name.startswith("invsim.client.arms")} <= {
        "invsim.client.arms.Arm",
        "invsim.client.arms.get_arm",
    }


def test_the_example_in_the_documentation_runs() -> None:
    assert doctest.testmod(invsim.sim.vector.engine).failed == 0
