"""Random scenarios: streams, drift of every kind at any time, drawn from a seed.

For verification, and for trying one's own arm on drift nobody thought of. A scenario is a function of its seed alone.
"""

from __future__ import annotations

from random import Random

from invsim.client.arms import arm_names
from invsim.located import Source
from invsim.sim.scenario import DriftFile, EligibilityFile, Manifest, RowFile, Scenario, TaskFile, WindowFile
from invsim.world.domain import RuleFile, load_domain
from invsim.world.tables import Rows
from invsim.world.wire import Value

_CODES = ("SUMMERSALE25", "WINTERLAUNCH26", "SPRINGBOOST26", "AUTUMNCORE26")
_CREDIT = ("acme_pm_visa_credit", "acme_pm_mastercard_credit")


def random_scenario(seed: int, *, episodes: int = 36, events: int = 6, between: bool = False) -> Scenario:
    """Return a scenario on the Acme domain.

    Parameters
    ----------
    seed : int
    episodes : int
        Length of the stream.
    events : int
        Drift events at the most: edits, removals and additions of rows, republications, and rules declared and
        withdrawn, between episodes or in the middle of one.
    between : bool
        Keep drift between episodes, as the engines that work on tables need it.
    """
    random = Random(seed)
    world = load_domain("acme").world()
    tasks = _tasks(random, {name: table.rows for name, table in world.tables.items()})
    manifest = Manifest(
        name=f"random-{seed}",
        title="random tasks, random drift",
        domain="acme",
        stream=" ".join(random.choices(list(tasks), k=episodes)),
        tasks=tasks,
        arms=list(arm_names()),
        episode_ticks=10,
    )
    drawn = set(manifest.stream.split())
    manifest.eligibility = EligibilityFile(constraint=tasks[sorted(drawn)[0]].constraint)
    manifest.windows = [WindowFile(name="whole_class", constraint=manifest.eligibility.constraint)]
    manifest.drift = _Drift(random, episodes, between).events(random.randint(0, events))
    return Scenario(manifest, Source(manifest.name, ""))


def _tasks(random: Random, tables: dict[str, Rows]) -> dict[str, TaskFile]:
    tasks = {"N": TaskFile(constraint="none", request={"plan": "plan_standard", "amount": 10.0})}
    for plan in random.sample(list(tables["active_csm_codes"]), k=random.randint(1, 3)):
        request: dict[str, Value] = {"plan": plan, "amount": 49.0}
        tasks[f"G.{plan}"] = TaskFile("governed", request, "ADD_ACTIVE_PROMO_CODE", plan)
    for token in random.sample(list(tables["recommended_credit_token"]), k=random.randint(1, 4)):
        request = {"plan": "plan_standard", "contract": "enterprise_annual", "payment_method_token": token}
        tasks[f"F.{token}"] = TaskFile("funding", request, "USE_REQUIRED_FUNDING_TYPE", token)
    for plan in random.sample(list(tables["required_promo_policy"]), k=random.randint(0, 2)):
        request = {"plan": plan, "promo_type": "none"}
        tasks[f"C.{plan}"] = TaskFile("control", request, "USE_REQUIRED_PROMO_TYPE", plan)
    return tasks


class _Drift:
    """Draws operations that are possible in the state the earlier ones have led to."""

    def __init__(self, random: Random, episodes: int, between: bool) -> None:
        self.random, self.episodes, self.between = random, episodes, between
        domain = load_domain("acme")
        self.rows: dict[str, dict[str, RowFile]] = {
            table.name: {key: dict(row) for key, row in table.rows.items()}  # type: ignore[arg-type]
            for table in domain.tables
        }
        self.rules = [RuleFile(*rule.triple) for rule in domain.rules]

    def events(self, count: int) -> list[DriftFile]:
        ticks = sorted(self.random.sample(range(1, 10 * self.episodes), k=count))
        return [self._at(tick) for tick in ticks]

    def _at(self, tick: int) -> DriftFile:
        event = self._operation()
        # An event between episodes is written as one; the others fall between an episode's attempts.
        if self.between or tick % 10 >= 5:
            event.after_episode = tick // 10
        else:
            event.at_tick = tick
        return event

    def _operation(self) -> DriftFile:
        choice = self.random.random()
        if choice < 0.2:
            return DriftFile(republish=self.random.choice(list(self.rows)))
        if choice < 0.3 and self.rules:
            return DriftFile(remove_rule=self.rules.pop(self.random.randrange(len(self.rules))))
        if choice < 0.4:
            start, end = self.random.sample(list(self.rows), k=2)
            rule = RuleFile(start, end, f"relation_{self.random.randrange(10**9)}")
            self.rules.append(rule)
            return DriftFile(declare_rule=rule)
        return self._edit()

    def _edit(self) -> DriftFile:
        random = self.random
        table = random.choice(
            ["active_csm_codes", "recommended_credit_token", "token_funding_map", "promo_eligibility"]
        )
        rows = self.rows[table]
        # A code that may no longer be redeemed breaks a second policy, and then no fix passes: that is kept out.
        if random.random() < 0.15 and len(rows) > 1 and table != "promo_eligibility":
            key = random.choice(list(rows))
            del rows[key]
            return DriftFile(edit=table, remove=[key])
        keys = random.sample(list(rows), k=min(len(rows), random.choice([1, 1, 1, 2])))
        put = {key: self._row(table) for key in keys}
        rows.update(put)
        return DriftFile(edit=table, put=put)

    def _row(self, table: str) -> RowFile:
        match table:
            case "active_csm_codes":
                return {"code": self.random.choice(_CODES)}
            case "recommended_credit_token":
                return {"token": self.random.choice(_CREDIT)}
            case "token_funding_map":
                return {"funding": self.random.choice(["debit", "credit"])}
            case _:
                return {"promo_type": self.random.choice(["percent", "fixed"])}
