"""A stream episode by episode: how likely a first try is in each arm, and what one stream's client held and did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invsim.report.figures.style import INK, PAGE, Row, headline, page, styled
from invsim.sim.events import EpisodeEnded, EpisodeStarted, EventLog, Evicted, Restamped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STATES = {
    "free": ("no constraint", "#F2F2F2", ""),
    "hit": ("valid fix, first try", "#2E6FA8", "●"),
    "declined": ("valid fix, not applied", "#A9CCE6", "○"),
    "conflict": ("stale beside fresh", "#E9B872", "◐"),
    "stale": ("stale fix alone", "#B0471B", "×"),
    "cold": ("nothing held: first of its key", "#C9C9C9", "–"),
    "lost": ("nothing held: evicted, or never learned", "#767676", "!"),
}
"""What an episode met: label, colour, and the sign that tells it apart without colour."""

LIGHT_SIGNS = ("hit", "stale", "lost")


@dataclass(frozen=True)
class EpisodeState:
    """What one episode of one stream met, and what the client did in it."""

    state: str
    retries: int
    completed: bool
    evicted: int
    restamped: int


@dataclass(frozen=True)
class EpisodeMap:
    """One arm, episode by episode.

    Parameters
    ----------
    arm : str
    probability : tuple of float
        Of a first try, exactly.
    states : tuple of EpisodeState
        Of one stream.
    """

    arm: str
    probability: tuple[float, ...]
    states: tuple[EpisodeState, ...]


@dataclass(frozen=True)
class Timeline:
    """What all arms share.

    Parameters
    ----------
    model : str
    classes : tuple of str
        Constraint class per episode.
    drift : tuple of (after episode, label)
    stream : int
        Index of the stream whose states are shown.
    """

    model: str
    classes: tuple[str, ...]
    drift: tuple[tuple[int, str], ...]
    stream: int


def read_states(log: EventLog) -> tuple[EpisodeState, ...]:
    """Return the state of each episode of an event log."""
    states: list[EpisodeState] = []
    seen: set[str] = set()
    evicted = restamped = 0
    start: EpisodeStarted | None = None
    for event in log:
        match event:
            case EpisodeStarted():
                start, evicted, restamped = event, 0, 0
            case Evicted():
                evicted += len(event.entries)
            case Restamped():
                restamped += len(event.entries)
            case EpisodeEnded() if start is not None:
                first = event.completed and event.attempts == 1
                name = _state(start, first=first, seen=start.key in seen)
                states.append(EpisodeState(name, event.attempts - 1, event.completed, evicted, restamped))
                seen |= {start.key} if start.key is not None else set()
    return tuple(states)


def _state(start: EpisodeStarted, *, first: bool, seen: bool) -> str:
    match start.injected:
        case _ if start.key is None:
            return "free"
        case "valid":
            return "hit" if first else "declined"
        case "conflict" | "stale" as held:
            return held
        case _:
            return "lost" if seen else "cold"


def episode_rows(maps: Sequence[EpisodeMap], timeline: Timeline) -> list[Row]:
    """Return the plotted values, one row an arm and episode."""
    return [
        {
            "model": timeline.model,
            "arm": each.arm,
            "episode": at,
            "class": timeline.classes[at],
            "probability": each.probability[at],
            "state": state.state,
            "retries": state.retries,
            "evicted": state.evicted,
            "restamped": state.restamped,
        }
        for each in maps
        for at, state in enumerate(each.states)
    ]


@styled
def episode_figure(maps: Sequence[EpisodeMap], timeline: Timeline) -> Figure:
    """Draw probabilities of a first try above, and one stream's states below, an arm a row and an episode a column."""
    figure = page(PAGE, 4.3)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, 1.75))
    _probabilities(figure, upper, maps)
    _states(lower, maps)
    for axis in (upper, lower):
        _drift(axis, timeline)
        axis.set_yticks(range(len(maps)), [each.arm for each in maps])
        axis.set_ylabel("arm")
        axis.tick_params(length=0)
        axis.grid(visible=False)
        for spine in axis.spines.values():
            spine.set_visible(False)
    for after, label in timeline.drift:
        upper.annotate(
            label, (after + 0.5, -0.62), ha="center", va="bottom", fontsize=6.2, annotation_clip=False, color=INK
        )  # fmt: skip
    initials = [name[0].upper() if name != "none" else "·" for name in timeline.classes]
    lower.set_xticks(
        range(len(initials)), [f"{sign}\n{at}" if at % 3 == 0 else f"{sign}\n" for at, sign in enumerate(initials)]
    )
    names = dict.fromkeys(name for name in timeline.classes if name != "none")
    lower.set_xlabel(f"episode, under the initial of its class ({', '.join(names)}; · no constraint)")
    upper.set_title(f"(a) probability of a first try, {timeline.model}, exact", pad=14)
    lower.set_title(
        f"(b) stream {timeline.stream}: what each episode held. Digits: retries; E: entries evicted; R: restamped"
    )
    used = [name for name in STATES if any(state.state == name for each in maps for state in each.states)]
    _legend(figure, used)
    headline(figure, "A1 keeps injecting what drifted, A2 forgets what did not, A2D pays one try a rotation")
    return figure


def _probabilities(figure: Figure, axis: Axes, maps: Sequence[EpisodeMap]) -> None:
    grid = axis.pcolormesh(
        [at - 0.5 for at in range(len(maps[0].probability) + 1)],
        [at - 0.5 for at in range(len(maps) + 1)],
        [each.probability for each in maps],
        cmap="Blues", vmin=0.0, vmax=1.0, edgecolors="white", linewidth=1.0,
    )  # fmt: skip
    axis.invert_yaxis()
    bar = figure.colorbar(grid, ax=axis, pad=0.01, aspect=9, ticks=[0, 0.5, 1])
    bar.set_label("probability")
    bar.outline.set_visible(False)


def _states(axis: Axes, maps: Sequence[EpisodeMap]) -> None:
    for row, each in enumerate(maps):
        for at, state in enumerate(each.states):
            _, colour, sign = STATES[state.state]
            axis.bar(at, 0.92, width=0.92, bottom=row - 0.46, color=colour, linewidth=0)
            ink = "white" if state.state in LIGHT_SIGNS else INK
            acts = f"E{state.evicted}" if state.evicted else f"R{state.restamped}" if state.restamped else ""
            for text, y, weight in ((sign, -0.28, "normal"), (_retries(state), 0.03, "normal"), (acts, 0.3, "bold")):
                axis.text(at, row + y, text, ha="center", va="center", fontsize=5.5, fontweight=weight, color=ink)
    axis.set_xlim(-0.5, len(maps[0].states) - 0.5)
    axis.set_ylim(len(maps) - 0.5, -0.5)


def _retries(state: EpisodeState) -> str:
    return f"{state.retries or ''}{'' if state.completed else '†'}"


def _drift(axis: Axes, timeline: Timeline) -> None:
    for after, _ in timeline.drift:
        axis.axvline(after + 0.5, color=INK, linewidth=1.1, linestyle=(0, (3, 1.5)))


def _legend(figure: Figure, used: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(
            facecolor=STATES[name][1],
            edgecolor="#999999",
            linewidth=0.3,
            label=f"{STATES[name][2]}  {STATES[name][0]}".strip(),
        )
        for name in used
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=4, handlelength=1.2, columnspacing=1.4, fontsize=6.5)
