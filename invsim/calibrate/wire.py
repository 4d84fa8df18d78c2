"""What the contract costs on the wire: the server's real responses to the requests of simulated streams, weighed.

Beside the bytes that the paper prints (section 3.7), with the reason for each difference, and an account of what the
printed figures say when they are multiplied out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from invsim.calibrate.structure import published_wire
from invsim.client.planners.models import PUBLISHED, load_model
from invsim.errors import InputError
from invsim.sim.engine import rerun
from invsim.sim.events import Attempted
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import load_scenario
from invsim.world.domain import load_domain
from invsim.world.drift import play
from invsim.world.server import Server
from invsim.world.wire import PER_SUGGESTION, ByteAccount, Level, Request, Response, account, canonical

GOVERNED_TABLE = len('"table":"active_csm_codes"')

LEVELS = (Level.L1, Level.L4, Level.L5, Level.L6)


@dataclass(frozen=True)
class FieldCost:
    """One contract field.

    Parameters
    ----------
    field : str
    carriers : int
        Responses that carry it.
    bytes : float
        Mean over suggestions that carry it for a field of a suggestion, else over responses that do.
    share : float
        Of all bytes sent, 0..1.
    """

    field: str
    carriers: int
    bytes: float
    share: float

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return asdict(self)


@dataclass(frozen=True)
class WireCost:
    """The responses of some streams at one wire level.

    Parameters
    ----------
    level : str
    scenario : str
    responses, errors, carriers : int
        All; those that report an error; those with any contract field.
    mean_bytes, contract_bytes, carrier_bytes, largest : float
        Mean size of a response; mean addition over all responses and over carriers; largest addition.
    contract_share : float
        Contract bytes over all bytes, 0..1.
    fields : tuple of FieldCost
    """

    level: str
    scenario: str
    responses: int
    errors: int
    carriers: int
    mean_bytes: float
    contract_bytes: float
    contract_share: float
    carrier_bytes: float
    largest: int
    fields: tuple[FieldCost, ...]

    def field(self, name: str) -> FieldCost:
        """Return one field's cost; one that no response carries costs nothing."""
        return next((each for each in self.fields if each.field == name), FieldCost(name, 0, 0.0, 0.0))

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return asdict(self)


@dataclass(frozen=True)
class WireRow:
    """A printed figure beside the measured one, and why they differ; shares as 0..1."""

    figure: str
    printed: float
    measured: float
    reason: str

    @property
    def difference(self) -> float:
        """Measured less printed."""
        return self.measured - self.printed

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {**asdict(self), "difference": self.difference}


@dataclass(frozen=True)
class Implied:
    """What printed figures say together: what they give, what it stands beside, and how to read the two."""

    what: str
    left: float
    right: float
    reading: str

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return asdict(self)


def wire_cost(
    scenario: str = "payments",
    *,
    levels: Sequence[Level] = LEVELS,
    models: Collection[str] = PUBLISHED,
    streams: int = 3,
    seed: int = 1,
) -> tuple[WireCost, ...]:
    """Weigh every response that the published models meet, in all their published arms, once per wire level.

    Streams are played by the event engine; their requests are put to a server that drifts as theirs did, and each
    answer counts as often as it was met.

    Parameters
    ----------
    scenario : str
    levels : sequence of Level
    models : collection of str
    streams : int
        Streams per model and arm, 1 or more; the paper ran 3.
    seed : int

    Raises
    ------
    InputError
        For fewer than one stream or no model.
    """
    if streams < 1:
        raise InputError("streams must be 1 or more", value=streams)
    if not models:
        raise InputError("names at least one model", value=list(models))
    plan_at = partial(compile_plan, load_scenario(scenario))
    return tuple(_weighed(level, _met(plan_at(level=level), models, streams, seed)) for level in levels)


def _met(plan: Plan, models: Collection[str], streams: int, seed: int) -> tuple[str, list[tuple[Response, int]]]:
    """Return every response with how often it was met."""
    seen: dict[tuple[int, str], int] = {}
    events = [event.after_episode for event in plan.drift]
    for name in models:
        model = load_model(name)
        for arm in (each for each in plan.arms if each.name in model.published_arms):
            for stream in range(streams):
                for event in rerun(plan, arm=arm, model=model, seed=seed, stream=stream):
                    if isinstance(event, Attempted):
                        drifted = sum(after < event.episode for after in events)
                        asked = drifted, canonical(event.request)
                        seen[asked] = seen.get(asked, 0) + 1
    server, responses = Server(plan.world), []
    import msgspec

    for drifted in range(len(events) + 1):
        if drifted:
            play(server, plan.drift[drifted - 1].operation)
        for (phase, request), times in seen.items():
            if phase == drifted:
                responses.append((server.handle(Request(msgspec.json.decode(request))), times))
    return plan.name, responses


def _weighed(level: Level, met: tuple[str, list[tuple[Response, int]]]) -> WireCost:
    scenario, responses = met
    weighed: list[tuple[Response, ByteAccount, int]] = [(each, account(each), times) for each, times in responses]
    count = sum(times for *_, times in weighed)
    total = sum(found.total * times for _, found, times in weighed)
    contract = sum(found.contract * times for _, found, times in weighed)
    carriers = sum(times for _, found, times in weighed if found.fields)
    fields = []
    for name in dict.fromkeys(field for _, found, _ in weighed for field in found.fields):
        size = sum(found.fields.get(name, 0) * times for _, found, times in weighed)
        with_it = sum(times for _, found, times in weighed if name in found.fields)
        fields.append(FieldCost(name, with_it, size / _carried(name, weighed), size / total))
    return WireCost(
        level=level.name,
        scenario=scenario,
        responses=count,
        errors=sum(times for response, _, times in weighed if not response.ok),
        carriers=carriers,
        mean_bytes=total / count,
        contract_bytes=contract / count,
        contract_share=contract / total,
        carrier_bytes=contract / carriers if carriers else 0.0,
        largest=max(found.contract for _, found, _ in weighed),
        fields=tuple(fields),
    )


def _carried(name: str, weighed: Sequence[tuple[Response, ByteAccount, int]]) -> int:
    """Return how many suggestions, or responses, carry a field."""
    if name not in PER_SUGGESTION:
        return sum(times for _, found, times in weighed if name in found.fields)
    return sum(sum(name in each.to_dict() for each in response.suggestions) * times for response, _, times in weighed)


# Beside the print -------------------------------------------------------------------------------------------------


def beside_print(measured: WireCost) -> tuple[WireRow, ...]:
    """Set the printed bytes beside those of Level 1, which every arm carries."""
    printed = published_wire()
    versions, hint, table = measured.field("table_versions"), measured.field("cache_hint"), measured.field("table")
    small = "our bodies are compact JSON of a result flag, an error text and the suggestion; theirs average 817 bytes"
    every = "we send the envelope on every response, as section 3.2 says; printed shares imply half of the responses"
    rare = "a suggestion comes with errors only"
    share = measured.carriers / measured.responses
    return (
        WireRow("responses that carry fields", printed.carriers / printed.responses, share, every),
        WireRow("mean response, bytes", printed.mean_bytes, measured.mean_bytes, small),
        WireRow("mean addition, bytes", printed.contract_bytes, measured.contract_bytes, every),
        WireRow("addition, share of bytes", printed.contract_share, measured.contract_share, f"{small}; {every}"),
        WireRow("mean addition where carried, bytes", printed.carrier_bytes, measured.carrier_bytes, every),
        WireRow(
            "largest addition, bytes", printed.largest, measured.largest,
            "251 is 198 + 24 + 26 and three commas, a governed suggestion; our funding (252) and control (259) ones "
            "name longer tables",
        ),
        WireRow(
            "table_versions, share of bytes", printed.table_versions_share, versions.share, f"{small}; {every}"
        ),
        WireRow(
            "table_versions, bytes", printed.table_versions_bytes, versions.bytes,
            "six names and versions; a mean below that has responses of a domain with fewer tables in it",
        ),
        WireRow(
            "cache_hint and table, share of bytes", printed.suggestion_share, hint.share + table.share,
            f"{small}; {rare}",
        ),
        WireRow("cache_hint, bytes", printed.cache_hint_bytes, hint.bytes, 'the same text, "cache_hint":"cacheable"'),
        WireRow("table, bytes", printed.table_bytes, table.bytes, "the mean length of the names of the tables met"),
    )  # fmt: skip


def envelope(domain: str) -> int:
    """Return the bytes of a domain's table_versions."""
    world = load_domain(domain).world(level=Level.L1)
    return account(Response(ok=True, table_versions=world.versions)).fields["table_versions"]


def implied(measured: WireCost) -> tuple[Implied, ...]:
    """Multiply the printed figures out, and say which agree and what the rest implies beside what was measured."""
    wire = published_wire()
    bodies = wire.mean_bytes - wire.contract_bytes
    acme, recipes = envelope("acme"), envelope("recipes")
    versions = wire.table_versions_share * wire.mean_bytes
    suggestion = wire.suggestion_share * wire.mean_bytes
    each = wire.cache_hint_bytes + wire.table_bytes
    with_versions = versions / wire.table_versions_bytes * wire.responses
    suggested = suggestion / each * wire.responses
    return (
        Implied(
            "mean addition / mean response", wire.contract_bytes / wire.mean_bytes, wire.contract_share,
            "agrees: 15.1% of payload is a ratio of means",
        ),
        Implied(
            "mean addition x responses / carriers", wire.contract_bytes * wire.responses / wire.carriers,
            wire.carrier_bytes, "agrees to the rounding of 123",
        ),
        Implied(
            "responses with any field, share", wire.carriers / wire.responses, 1.0,
            "contradicts table_versions on every response (section 3.2); which lack it is not said",
        ),
        Implied(
            "responses with table_versions, share", with_versions / wire.responses, wire.carriers / wire.responses,
            "11.7% of 817 bytes at 190 bytes each: half of the responses, and fewer than carry any field",
        ),
        Implied(
            "responses with table_versions", with_versions, wire.carriers,
            "so about 700 responses carry suggestion fields and no envelope",
        ),
        Implied(
            "suggestions per response", suggested / wire.responses, with_versions / wire.responses,
            "3.2% of 817 bytes at 24 + 28 each: a suggestion in every second response",
        ),
        Implied(
            "bytes of the three fields per response", versions + suggestion, wire.contract_bytes,
            "agrees: what is left are the commas between fields",
        ),
        Implied(
            "envelopes of the six-table domain, share", (wire.table_versions_bytes - recipes) / (acme - recipes), 1.0,
            f"a mean of 190 bytes between our {acme} (six tables) and {recipes} (recipes): mostly payments responses",
        ),
        Implied(
            "share, their bodies with our additions", measured.contract_bytes / (bodies + measured.contract_bytes),
            wire.contract_share, "their 694 bytes a body with an envelope on every response: about a quarter, not 15%",
        ),
        Implied(
            "largest addition of a governed error, bytes", acme + wire.cache_hint_bytes + GOVERNED_TABLE + 3,
            wire.largest, "agrees to the byte, so the printed responses are compact JSON of our six table names",
        ),
    )  # fmt: skip
