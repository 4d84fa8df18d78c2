"""The arms: what a client does with the contract, as small pure functions.

An arm is three choices - how it stores, what it does when a table's stamp moves, what it does when the rules move -
each a function of the store and the message, without I/O. To add an arm, write the function that differs and register
an ``Arm`` with it; the engine needs no change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from invsim.client.memory import Entry, Memory, Slot, Step, Versions, entry_from
from invsim.errors import InputError, UnknownNameError
from invsim.world.rules import node_id
from invsim.world.server import ReloadReport, RuleChange
from invsim.world.wire import Level, Response, Suggestion


@dataclass(frozen=True, slots=True)
class Message:
    """A response, and what the client asked for on account of it.

    Parameters
    ----------
    response : Response
    stale : tuple of str
        Tables whose version is not the one the store was last squared against.
    reloads : mapping of table to ReloadReport
        The last reload of each stale table, for arms that fetch it.
    rule_changes : tuple of RuleChange
        Declarations since the last response, for the arm that sees them.
    """

    response: Response
    stale: tuple[str, ...] = ()
    reloads: Mapping[str, ReloadReport] = field(default_factory=dict)
    rule_changes: tuple[RuleChange, ...] = ()


Reaction = Callable[[Memory, Message], Step]


# When a table's stamp moves ---------------------------------------------------------------------------------------


def ignore(memory: Memory, message: Message) -> Step:
    """Do nothing."""
    return Step(memory)


def evict_tables(memory: Memory, message: Message) -> Step:
    """Evict every entry that depends on a table whose stamp moved."""
    gone = tuple(entry for entry in memory if not entry.stamps.keys().isdisjoint(message.stale))
    return Step(_without(memory, gone), gone, alerts=_table_alerts(message))


def evict_rows(memory: Memory, message: Message) -> Step:
    """Evict the entries whose row is in the diff, restamp the other entries of the table.

    The server tells its last diff only. When an entry's stamp is older than that diff's starting version, what
    happened in between is unknown and the entry is evicted.
    """
    gone = tuple(entry for entry in memory if _hit(entry, message))
    return _restamp_rest(memory, message, gone)


def evict_rows_and_notify(memory: Memory, message: Message) -> Step:
    """As ``evict_rows``; an evicted row then notifies the entries that depended on it, and so on.

    Known to the client alone: an entry depends on a row when its vector holds the row's table and it answers for the
    same key.
    """
    gone = [entry for entry in memory if _hit(entry, message)]
    for source in gone:
        gone += [
            entry
            for entry in memory
            if entry not in gone and entry.slot.key == source.slot.key and source.table in entry.stamps
        ]
    return _restamp_rest(memory, message, tuple(gone))


def evict_rows_and_downstream(memory: Memory, message: Message) -> Step:
    """As ``evict_rows``, and evict the entries whose node the server reports as downstream of the change."""
    affected = {node for report in message.reloads.values() for node in report.affected_downstream}
    gone = tuple(entry for entry in memory if _hit(entry, message) or node_id(entry.table, entry.slot.key) in affected)
    return _restamp_rest(memory, message, gone)


def _hit(entry: Entry, message: Message) -> bool:
    for table in message.stale:
        if table in entry.stamps:
            report = message.reloads.get(table)
            if report is None or entry.stamps[table] != report.diff.old_version:
                return True
            if entry.slot.key in report.diff.keys:
                return True
    return False


def _restamp_rest(memory: Memory, message: Message, gone: tuple[Entry, ...]) -> Step:
    kept = _without(memory, gone)
    versions = message.response.table_versions or {}
    restamps = tuple(
        entries for table in message.stale if (entries := tuple(entry for entry in kept if table in entry.stamps))
    )
    if restamps:
        moved = {entry for entries in restamps for entry in entries}
        kept = kept.mapped(lambda entry: entry.restamped(versions) if entry in moved else entry)
    return Step(kept, gone, restamps, _table_alerts(message))


def _table_alerts(message: Message) -> tuple[str, ...]:
    return tuple(f"table {name}" for name in message.stale)


# When the rules move ----------------------------------------------------------------------------------------------


def compare_vectors(memory: Memory, message: Message) -> Step:
    """On a failed response, compare the new suggestion's vector with the cached entries of its family.

    A lost dependency evicts; a widened vector restamps.
    """
    steps = Step(memory)
    for suggestion in message.response.suggestions:
        if suggestion.tables is not None:
            steps = steps.then(_compare(steps.memory, suggestion, dict(suggestion.tables)))
    return steps


def _compare(memory: Memory, suggestion: Suggestion, vector: Versions) -> Step:
    family = [entry for entry in memory if entry.slot.family == suggestion.type]
    lost = tuple(entry for entry in family if not entry.stamps.keys() <= vector.keys())
    widened = tuple(entry for entry in family if entry.stamps.keys() < vector.keys())
    memory = _without(memory, lost)
    if widened:
        memory = memory.mapped(lambda entry: entry.restamped(vector, vector) if entry in widened else entry)
    return Step(memory, lost, (widened,) if widened else ())


def lazy_vectors(memory: Memory, message: Message) -> Step:
    """Notice rule drift only where a vector disagrees, so only on a failure."""
    step = compare_vectors(memory, message)
    noticed = ("rules",) if step.evicted or step.restamps else ()
    return step._replace(alerts=noticed)


def stamp_only(memory: Memory, message: Message) -> Step:
    """Clear everything when the fingerprint moves."""
    if not _fingerprint_moved(memory, message):
        return Step(memory)
    cleared = Memory(versions=memory.versions, rules_version=memory.rules_version)
    return Step(cleared, tuple(memory), alerts=("rules",))


def stamp_and_vectors(memory: Memory, message: Message) -> Step:
    """Notice at once by the fingerprint; dispose by the vectors at the next failure."""
    step = compare_vectors(memory, message)
    return step._replace(alerts=("rules",) if _fingerprint_moved(memory, message) else ())


def rule_oracle(memory: Memory, message: Message) -> Step:
    """See each declaration.

    A removed edge evicts what was derived along it; an added one evicts the entries of its to-side and restamps those
    of its from-side.
    """
    steps = Step(memory)
    for change in message.rule_changes:
        steps = steps.then(_dispose(steps.memory, change, message.response.table_versions or memory.versions))
    return steps


def _dispose(memory: Memory, change: RuleChange, versions: Versions) -> Step:
    start, end = change.rule.edge
    if not change.added:
        gone = tuple(entry for entry in memory if start in entry.stamps and end in entry.stamps)
        return Step(_without(memory, gone), gone, alerts=("rules",))
    gone = tuple(entry for entry in memory if entry.table == end)
    kept = _without(memory, gone)
    widened = tuple(entry for entry in kept if entry.table == start)
    kept = kept.mapped(lambda entry: entry.restamped(versions, (*entry.stamps, end)) if entry in widened else entry)
    return Step(kept, gone, (widened,) if widened else (), ("rules",))


def _fingerprint_moved(memory: Memory, message: Message) -> bool:
    new = message.response.rules_version
    return new is not None and memory.rules_version is not None and new != memory.rules_version


def _without(memory: Memory, gone: Collection[Entry]) -> Memory:
    return memory.mapped(lambda entry: None if entry in gone else entry) if gone else memory


# The arms ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arm:
    """A client policy.

    Parameters
    ----------
    name, title : str
    stores : bool
        False keeps no memory at all.
    append : bool
        True adds a new value beside the old ones of its key; False replaces them.
    on_tables : callable
        ``(memory, message) -> Step``, called when a table's version moved.
    on_rules : callable
        ``(memory, message) -> Step``, called on every failed response, and on any response that brings something new.
    wants : frozenset of str
        What it asks the server for: "reloads", "rules".
    vectors : bool
        Whether it reads dependency vectors (L4); else the scalar table.
    checks_versions : bool
        Whether it promises to keep only entries whose stamps are current.
    level : Level
        The lowest wire level that carries all it reads.
    """

    name: str
    title: str
    stores: bool = True
    append: bool = False
    on_tables: Reaction = ignore
    on_rules: Reaction = ignore
    wants: frozenset[str] = frozenset()
    vectors: bool = False
    checks_versions: bool = False
    level: Level = Level.L1

    def observe(self, memory: Memory, message: Message) -> Step:
        """Square the store with a response: tables first, then rules. Pure."""
        response = message.response
        step = self.on_tables(memory, message) if message.stale else Step(memory)
        if self.on_rules is not ignore:
            step = step.then(self.on_rules(step.memory, message))
        seen = step.memory.having_seen(response.table_versions, response.rules_version)
        return step._replace(memory=seen)

    def commit(self, memory: Memory, slot: Slot, suggestion: Suggestion) -> tuple[Memory, Entry | None]:
        """Store a suggestion whose episode completed. Pure."""
        entry = entry_from(slot, suggestion, memory.versions, vectors=self.vectors) if self.stores else None
        if entry is None:
            return memory, None
        return memory.with_entry(entry, append=self.append), entry


_arms: dict[str, Arm] = {}


def register_arm(arm: Arm) -> Arm:
    """Make an arm known by its name; a name is taken once."""
    if arm.name in _arms:
        raise InputError("an arm of that name is registered already", value=arm.name)
    _arms[arm.name] = arm
    return arm


def get_arm(name: str, *, where: object = "") -> Arm:
    """Return the arm of that name; an unknown one is an ``UnknownNameError``."""
    if name not in _arms:
        raise UnknownNameError("arm", name, _arms, where=where)
    return _arms[name]


def arm_names() -> tuple[str, ...]:
    """Return the names of all arms, the nine of the paper first."""
    return tuple(_arms)


A0 = register_arm(Arm("A0", "no memory", stores=False, level=Level.L0))
A1 = register_arm(Arm("A1", "memory, no invalidation", append=True))
A2 = register_arm(Arm("A2", "table-granularity stamps", on_tables=evict_tables, checks_versions=True))
A2D = register_arm(
    Arm(
        "A2D",
        "row-level diffs",
        on_tables=evict_rows,
        wants=frozenset({"reloads"}),
        checks_versions=True,
    )
)
A2DC = register_arm(
    replace(
        A2D,
        name="A2DC",
        title="row-level diffs, consumer notification, lazy vectors",
        on_tables=evict_rows_and_notify,
        on_rules=lazy_vectors,
        vectors=True,
        level=Level.L4,
    )
)
A2DG = register_arm(
    replace(
        A2DC,
        name="A2DG",
        title="row-level diffs, graph propagation, vectors",
        on_tables=evict_rows_and_downstream,
        level=Level.L5,
    )
)
A2DR = register_arm(
    replace(A2D, name="A2DR", title="row-level diffs, rules stamp only", on_rules=stamp_only, level=Level.L6)
)
A2DRC = register_arm(
    replace(
        A2DR,
        name="A2DRC",
        title="row-level diffs, rules stamp and vectors",
        on_rules=stamp_and_vectors,
        vectors=True,
    )
)
A2DO = register_arm(
    replace(
        A2D,
        name="A2DO",
        title="row-level diffs, rule-declaration oracle",
        on_rules=rule_oracle,
        wants=frozenset({"reloads", "rules"}),
        vectors=True,
        level=Level.L4,
    )
)

SHIPPED = frozenset(_arms)
"""Names of the paper's nine, which nobody can give another meaning."""
