"""The payments stream as one would write it by hand: SimPy, a dict as memory, integers as versions.

What ``bench.py`` holds the engine against. It shares only the draws (``invsim.rng.uniforms``) with the package; the
stream, the drift, the server and the arms A0, A1, A2 and A2D are written out here for this one case.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import simpy

from invsim.rng import uniforms

Process = Generator[simpy.Event, None, None]

STREAM = """
G  k1 N  G  C  k2 G  N  k1 G  C  N
G  k3 N  G  C  k1 G  N  k2 G  C  N
G  k4 N  G  C  k1 G  N  k2 G  C  N
""".split()
TABLE = {"G": "codes", "k1": "tokens", "k2": "tokens", "k3": "tokens", "k4": "tokens", "C": "types"}
DRIFT = [
    (12, "codes", frozenset({"G"})),
    (24, "tokens", frozenset[str]()),
]  # before which episode, table, rows
EPISODE_TICKS = 10
MAX_ATTEMPTS = 5


class Rates(NamedTuple):
    """P(first try succeeds) with a valid fix, with a stale and a fresh one, with none; and of each retry."""

    valid: float
    conflict: float
    unaided: float
    retry: float


class Fix(NamedTuple):
    """A cached fix: the revision of its row, and the version of its table it was seen to work under."""

    revision: int
    stamp: int


@dataclass
class Server:
    """Version of each table, revision of each row, and per table what its last reload changed."""

    versions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLE.values(), 1))
    revisions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLE, 1))
    diffs: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)


@dataclass
class Counts:
    """Totals over the streams of a run."""

    attempts: int = 0
    retries: int = 0
    first_try: int = 0
    completed: int = 0
    evicted: int = 0
    restamped: int = 0


def drift(env: simpy.Environment, server: Server) -> Process:
    """Reload a table half a tick before an episode starts."""
    for episode, table, rows in DRIFT:
        yield env.timeout(EPISODE_TICKS * episode - 0.5 - env.now)
        server.diffs[table] = (server.versions[table], rows)
        server.versions[table] += 1
        for key in rows:
            server.revisions[key] += 1


def agent(
    env: simpy.Environment,
    server: Server,
    arm: str,
    rates: Mapping[str, Rates],
    draws: list[float],
    counts: Counts,
) -> Process:
    """Work through the stream; a retry comes one tick after the attempt before."""
    memory: dict[str, list[Fix]] = {}
    seen = dict(server.versions)
    watches = arm in {"A2", "A2D"}
    for episode, key in enumerate(STREAM):
        yield env.timeout(EPISODE_TICKS * episode - env.now)
        ok = True
        if key in TABLE:
            p = rates[key]
            fixes = memory.get(key, ())
            fresh = [fix.revision == server.revisions[key] for fix in fixes]
            if not fresh:
                ok = draws[2 * episode] < p.unaided
            elif all(fresh):
                ok = draws[2 * episode] < p.valid
            else:  # a stale fix alone is applied, and fails
                ok = any(fresh) and draws[2 * episode] < p.conflict
        counts.attempts += 1
        counts.first_try += ok
        if watches and server.versions != seen:
            square(memory, seen, server, arm, counts)
        retry = 0
        while not ok and retry < MAX_ATTEMPTS - 1:
            yield env.timeout(1)
            retry += 1
            ok = draws[2 * episode + 1] < 1 - (1 - p.retry) ** retry
            counts.attempts += 1
            counts.retries += 1
            if watches and server.versions != seen:
                square(memory, seen, server, arm, counts)
            if ok and arm != "A0":
                fix = Fix(server.revisions[key], server.versions[TABLE[key]])
                others = [each for each in memory.get(key, ()) if each.revision != fix.revision]
                memory[key] = [*others, fix] if arm == "A1" else [fix]
        counts.completed += ok


def square(memory: dict[str, list[Fix]], seen: dict[str, int], server: Server, arm: str, counts: Counts) -> None:
    """Evict or restamp what depends on a table whose version moved: all of it in A2, by the diff in A2D."""
    for table in [name for name, version in server.versions.items() if seen[name] != version]:
        before, rows = server.diffs[table]
        for key in [key for key in memory if TABLE[key] == table]:
            (fix,) = memory[key]
            if arm == "A2" or key in rows or fix.stamp != before:
                del memory[key]
                counts.evicted += 1
            else:
                memory[key] = [Fix(fix.revision, server.versions[table])]
                counts.restamped += 1
        seen[table] = server.versions[table]


def simulate(arm: str, rates: Mapping[str, Rates], *, seed: int, first: int, count: int) -> Counts:
    """Play ``count`` streams from stream ``first`` on, each in an environment of its own."""
    counts = Counts()
    for draws in uniforms(seed, first=first, count=count, slots=2 * len(STREAM)):
        env, server = simpy.Environment(), Server()
        env.process(drift(env, server))
        env.process(agent(env, server, arm, rates, draws.tolist(), counts))
        env.run()
    return counts
