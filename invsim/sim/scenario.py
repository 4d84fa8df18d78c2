"""Scenario manifests: a stream of tasks against a domain, and the drift that meets it, as TOML."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import msgspec

from invsim.errors import InputError, UnknownNameError
from invsim.located import Source, Step, decode
from invsim.world.domain import RuleFile
from invsim.world.tables import Scalar
from invsim.world.wire import Value

SHIPPED = ("payments", "control", "frequency-1", "frequency-2", "frequency-3", "rules", "recipes")
MAX_ATTEMPTS = 5

RESERVED = frozenset(
    """
    arm first_try_by_class first_try_eligible validity compliance_given_valid evictions eviction_precision
    eviction_precision_row eviction_recall_row eviction_precision_table eviction_recall_table restamped_entries
    restamp_operations first_try retries attempts completed exhausted attempts_saving token_saving contract_failures
    """.split()
)
"""Names of metrics, which a window may not take."""

RowFile = dict[str, Scalar | list[Scalar]]


class TaskFile(msgspec.Struct, forbid_unknown_fields=True, rename={"constraint": "class"}):
    """A task as written: its constraint class, what it asks, and the row that its fix is about."""

    constraint: str
    request: dict[str, Value]
    family: str | None = None
    key: str | None = None


class DriftFile(msgspec.Struct, forbid_unknown_fields=True):
    """A drift event as written: when, and exactly one of what."""

    after_episode: int | None = None
    at_tick: int | None = None
    reload: str | None = None
    snapshot: str | None = None
    edit: str | None = None
    put: dict[str, RowFile] = {}
    remove: list[str] = []
    republish: str | None = None
    declare_rule: RuleFile | None = None
    remove_rule: RuleFile | None = None


class EligibilityFile(msgspec.Struct, forbid_unknown_fields=True, rename={"constraint": "class"}):
    """Which episodes the paper's compliance counts: all of a class but the first ones, and those after a rotation."""

    constraint: str
    skip_first: int = 1
    skip_after_rotation: int = 2


class WindowFile(msgspec.Struct, forbid_unknown_fields=True, rename={"constraint": "class"}):
    """A first-try rate to report over part of a class.

    Its episodes are those from ``first`` to ``last``; or the ones listed; or, with ``eligible_and_cold``, the eligible
    ones and the first ever.
    """

    name: str
    constraint: str
    first: int = 0
    last: int | None = None
    episodes: list[int] | None = None
    eligible_and_cold: bool = False


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """A scenario as written."""

    name: str
    domain: str
    stream: str
    tasks: dict[str, TaskFile]
    title: str = ""
    wire: str = "L6"
    arms: list[str] = msgspec.field(default_factory=lambda: ["A0", "A1", "A2", "A2D", "A2DC", "A2DG"])
    episode_ticks: int = 10
    drift: list[DriftFile] = []
    snapshots: dict[str, dict[str, RowFile]] = {}
    eligibility: EligibilityFile | None = None
    windows: list[WindowFile] = []


@dataclass(frozen=True)
class Scenario:
    """A manifest together with its text, so that later findings can still name file, line and field."""

    manifest: Manifest
    source: Source
    beside: Path | None = None

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.manifest.name

    def error(self, what: str, *steps: Step, value: object = None) -> InputError:
        """Return an error located in the manifest."""
        return InputError(what, where=self.source.where(*steps), value=value)


def load_scenario(name: str) -> Scenario:
    """Return a shipped scenario by name, or one from a TOML file when the name ends in ".toml".

    Raises
    ------
    UnknownNameError, InputError
        A file's errors name its line and field.
    """
    if name in SHIPPED:
        return parse_scenario(Source(f"{name}.toml", shipped_text(name)))
    if name.endswith(".toml"):
        path = Path(name)
        scenario = parse_scenario(Source.read(path), beside=path.parent)
        if scenario.name in SHIPPED:
            what = "is the name of a shipped scenario, whose published figures would stand beside yours; choose another"
            raise scenario.error(what, "name", value=scenario.name)
        return scenario
    raise UnknownNameError("scenario", name, (*SHIPPED, "a .toml file"))


def shipped_text(name: str) -> str:
    """Return the text of a shipped manifest."""
    return resources.files("invsim.sim.scenarios").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def parse_scenario(source: Source, *, beside: Path | None = None) -> Scenario:
    """Parse a manifest and check what can be checked without its domain."""
    scenario = Scenario(decode(source, Manifest), source, beside)
    manifest = scenario.manifest
    if manifest.episode_ticks < MAX_ATTEMPTS:
        what = f"episode_ticks must be at least {MAX_ATTEMPTS}, the attempts an episode may take"
        raise scenario.error(what, "episode_ticks", value=manifest.episode_ticks)
    if not manifest.arms:
        raise scenario.error("arms names no arm", "arms")
    names = manifest.stream.split()
    if not names:
        raise scenario.error("stream names no task", "stream")
    for name in names:
        if name not in manifest.tasks:
            raise UnknownNameError("task", name, manifest.tasks, where=source.where("stream"))
    for name, task in manifest.tasks.items():
        if (task.family is None) != (task.key is None):
            raise scenario.error("a task has both family and key, or neither", "tasks", name)
        for field, value in task.request.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise scenario.error("a request's numbers are finite", "tasks", name, "request", field, value=value)
    for at, drift in enumerate(manifest.drift):
        _check_drift(scenario, at, drift, episodes=len(names))
    _check_metrics(scenario, {task.constraint for task in manifest.tasks.values()}, episodes=len(names))
    return scenario


_WHAT = ("reload", "edit", "republish", "declare_rule", "remove_rule")


def _check_drift(scenario: Scenario, at: int, drift: DriftFile, *, episodes: int) -> None:
    field = ("drift", at)
    given = [name for name in _WHAT if getattr(drift, name) is not None]
    if len(given) != 1:
        what = f"a drift event has exactly one of {', '.join(_WHAT)}, not {' and '.join(given) or 'none'}"
        raise scenario.error(what, *field)
    if (drift.after_episode is None) == (drift.at_tick is None):
        raise scenario.error("a drift event has either after_episode or at_tick", *field)
    if drift.after_episode is not None and not 0 <= drift.after_episode < episodes:
        what = f"after_episode must be an episode of the stream, 0 to {episodes - 1}"
        raise scenario.error(what, *field, "after_episode", value=drift.after_episode)
    end = scenario.manifest.episode_ticks * episodes
    if drift.at_tick is not None and not 0 <= drift.at_tick < end:
        what = f"at_tick must fall within the stream, 0 to {end - 1}"
        raise scenario.error(what, *field, "at_tick", value=drift.at_tick)
    if (drift.snapshot is None) != (drift.reload is None):
        raise scenario.error("reload needs a snapshot, and only reload takes one", *field)
    if drift.snapshot is not None and drift.snapshot not in scenario.manifest.snapshots:
        where = scenario.source.where(*field, "snapshot")
        raise UnknownNameError("snapshot", drift.snapshot, scenario.manifest.snapshots, where=where)
    if (drift.put or drift.remove) and drift.edit is None:
        raise scenario.error("put and remove go with edit", *field)
    if drift.edit is not None and not (drift.put or drift.remove):
        raise scenario.error("edit needs put or remove; a benign bump is a republish", *field)


def _check_metrics(scenario: Scenario, classes: set[str], *, episodes: int) -> None:
    manifest, source = scenario.manifest, scenario.source
    if manifest.eligibility is not None:
        if manifest.eligibility.constraint not in classes:
            where = source.where("eligibility", "class")
            raise UnknownNameError("class", manifest.eligibility.constraint, sorted(classes), where=where)
        for name in ("skip_first", "skip_after_rotation"):
            if getattr(manifest.eligibility, name) < 0:
                value = getattr(manifest.eligibility, name)
                raise scenario.error(f"{name} must be 0 or more", "eligibility", name, value=value)
    names = [window.name for window in manifest.windows]
    for at, window in enumerate(manifest.windows):
        taken = window.name in RESERVED or re.fullmatch(r"alert_\d+", window.name) or window.name in names[:at]
        if taken or not re.fullmatch(r"[\w-]+", window.name):
            what = "a window's name is letters, digits, _ and -, and not another window's or a metric's"
            raise scenario.error(what, "windows", at, "name", value=window.name)
        for episode in window.episodes or ():
            if not 0 <= episode < episodes:
                what = f"must be an episode of the stream, 0 to {episodes - 1}"
                raise scenario.error(what, "windows", at, "episodes", value=episode)
        if window.episodes is not None and (window.eligible_and_cold or window.first or window.last is not None):
            raise scenario.error("a window has either episodes, or eligible_and_cold, or first and last", "windows", at)
        if window.constraint not in classes:
            where = source.where("windows", at, "class")
            raise UnknownNameError("class", window.constraint, sorted(classes), where=where)
        last = episodes - 1 if window.last is None else window.last
        if not 0 <= window.first <= last < episodes:
            what = f"first and last must be episodes of the stream in order, 0 to {episodes - 1}"
            raise scenario.error(what, "windows", at, value=[window.first, last])
