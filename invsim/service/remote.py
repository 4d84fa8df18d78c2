"""The simulator's end of the wire: a ``Server`` whose every answer, diff and declaration comes over HTTP.

A mirror of the server's world is kept for the oracles alone (what was right, what had to go); nothing a client is told
comes from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType, TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import msgspec

from invsim.errors import InputError
from invsim.service.messages import (
    STATE,
    ChangeMessage,
    LastReloadMessage,
    ProblemMessage,
    Reader,
    ReportMessage,
    ResponseMessage,
    RulesMessage,
    T,
    WorldMessage,
    rows_text,
)
from invsim.world.domain import Domain
from invsim.world.server import CACHE_LIMIT, ReloadReport, Report, RuleChange, Server, World
from invsim.world.tables import Diff
from invsim.world.wire import Level, Request, Response

SECONDS = 10.0
"""How long an answer may take."""

JSON = {"Content-Type": "application/json"}

RESPONSE: Reader[ResponseMessage] = Reader(ResponseMessage)
REPORT: Reader[ReportMessage] = Reader(ReportMessage)
LAST_RELOAD: Reader[LastReloadMessage] = Reader(LastReloadMessage)
CHANGE: Reader[ChangeMessage] = Reader(ChangeMessage)
RULES: Reader[RulesMessage] = Reader(RulesMessage)
WORLD: Reader[WorldMessage] = Reader(WorldMessage)
PROBLEM: Reader[ProblemMessage] = Reader(ProblemMessage)


class Remote:
    """A running service, over one connection that is kept alive. Its ``connect`` is a hook for the engine.

    Parameters
    ----------
    url : str
        Of the service: ``http://HOST:PORT``.
    token : str
        The operator's: a simulated stream resets the server and drives its drift.
    domain : Domain
        What the service must be serving.
    seconds : float
        How long an answer may take.

    Raises
    ------
    InputError
        For a URL that is none. Everything that goes wrong on the wire later is one too, and names the URL.

    Examples
    --------
    >>> with Remote("http://127.0.0.1:8722", token=token, domain=plan.domain) as remote:   # doctest: +SKIP
    ...     invsim.run(plan, model=model, replications=5, engine="simpy", connect=remote.connect)
    """

    def __init__(self, url: str, *, token: str, domain: Domain, seconds: float = SECONDS) -> None:
        self.url, self.domain = _checked(url), domain
        self._known: Level | None = None
        try:
            self._admin = {"Authorization": f"Bearer {token}"} | JSON
            self._client = httpx.Client(base_url=self.url, timeout=seconds, trust_env=False, headers={"Accept": "*/*"})
            self._client.build_request("GET", "/", headers=self._admin)
        except (UnicodeError, httpx.InvalidURL):
            raise InputError("the operator's token must be plain ASCII") from None

    @property
    def host(self) -> str:
        """The machine that the service runs on."""
        return self._client.base_url.host

    @property
    def encrypted(self) -> bool:
        """Whether others on the way cannot read along."""
        return self._client.base_url.scheme == "https"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def connect(self, world: World) -> RemoteServer:
        """Reset the service and return it as the server of one stream that starts at ``world``.

        Raises
        ------
        InputError
            When the service does not serve that very world: another domain or level, other rows, versions or rules.
        """
        if world.level is not self._known:  # before it is reset: it may be somebody else's, and in use
            self._require_kind(self.admin("GET", "/admin/world", WORLD), world)
            self._known = world.level
        found = self.admin("POST", "/admin/reset", WORLD)
        self._require_kind(found, world)
        self._require_same(found, world)
        return RemoteServer(self, world, found.state)

    def error(self, what: str, value: object = None) -> InputError:
        """Return an error that names the service."""
        return InputError(what, where=self.url, value=value)

    # Calls ----------------------------------------------------------------------------------------------------------

    def send(self, request: Request) -> tuple[bytes, str]:
        """Send a business request, and return the answer's bytes and the state it comes from."""
        body = msgspec.json.encode(dict(request.fields))
        answer = self._call("POST", "/requests", headers=JSON, content=body)
        if answer.status_code not in {HTTPStatus.OK, HTTPStatus.UNPROCESSABLE_ENTITY}:
            raise self._refused(answer)
        return answer.content, answer.headers.get(STATE, "")

    def get(self, path: str, reader: Reader[T]) -> T:
        """Read what any client may."""
        return self._read(self._call("GET", path), reader)

    def admin(
        self, method: str, path: str, reader: Reader[T], body: object = None, query: Mapping[str, str] | None = None
    ) -> T:
        """Do what takes an operator."""
        content = None if body is None else msgspec.json.encode(body)
        return self._read(self._call(method, path, headers=self._admin, content=content, params=query), reader)

    def read(self, body: bytes, reader: Reader[T]) -> T:
        """Read an answer; one that is not as the contract has it is an error of the service."""
        try:
            return reader.read(body)
        except InputError as error:
            raise self.error(f"answered what the contract does not allow: {error}") from None

    def _call(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **more)
        except httpx.ConnectError as error:
            raise self.error(f"nothing answers there: {error}") from None
        except httpx.TimeoutException:
            raise self.error(f"no answer in {self._client.timeout.read:g} s") from None
        except httpx.HTTPError as error:
            raise self.error(f"the connection failed: {error or type(error).__name__}") from None

    def _read(self, answer: httpx.Response, reader: Reader[T]) -> T:
        if answer.status_code != HTTPStatus.OK:
            raise self._refused(answer)
        return self.read(answer.content, reader)

    def _refused(self, answer: httpx.Response) -> InputError:
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            return self.error("the service does not know this operator's token")
        try:
            problem = PROBLEM.read(answer.content)
        except InputError:
            return self.error("is not a service of this kind: it answers", value=answer.status_code)
        return self.error(f"answered {answer.status_code} {problem.title}: {problem.detail}")

    # The world it must be serving -----------------------------------------------------------------------------------

    def _require_kind(self, found: WorldMessage, world: World) -> None:
        for what, there, here in (
            ("domain", found.domain, self.domain.name),
            ("wire level", found.level, world.level.name),
            ("tables", sorted(found.tables), sorted(world.tables)),
        ):
            if there != here:
                raise self.error(f"serves another {what} than this plan's, {here!r}", value=there)

    def _require_same(self, found: WorldMessage, world: World) -> None:
        for name, table in found.tables.items():
            mine = world.tables[name]
            if table.version != mine.version:
                raise self.error(f"starts table {name!r} at another version than {mine.version!r}", value=table.version)
            if rows_text(table.rows) != rows_text(mine.rows):  # their order shapes the graph's
                raise self.error(f"starts with other rows in table {name!r} than this plan")
        if [rule.build() for rule in found.rules] != list(world.rules):
            raise self.error("starts with other rules than this plan")


class RemoteServer(Server):
    """The server of one stream, at the other end of a ``Remote``."""

    __slots__ = ("_answers", "_epoch", "_moves", "_remote", "_versions")

    def __init__(self, remote: Remote, world: World, state: str) -> None:
        super().__init__(world)
        self._remote, self._epoch, self._moves = remote, state.partition("/")[0], 0
        self._versions: Mapping[str, str] | None = None
        self._answers: dict[bytes, Response] = {}

    def handle(self, request: Request) -> Response:
        """Send a business request; see ``Server.handle``."""
        body, state = self._remote.send(request)
        if state != f"{self._epoch}/{self._moves}":
            raise self._remote.error("somebody else has reset or moved the service while a stream was under way")
        answer = self._answers.get(body)
        if answer is None:
            if len(self._answers) >= CACHE_LIMIT:
                self._answers.clear()
            answer = self._answers[body] = self._parsed(body)
        return answer

    def _parsed(self, body: bytes) -> Response:
        """Return the response of some bytes; equal versions are one object, as they are in this process."""
        message = self._remote.read(body, RESPONSE)
        if message.table_versions is None:
            return message.build(None)
        if message.table_versions != self.world.versions:
            raise self._remote.error("answers versions that it is not at", value=message.table_versions)
        if self._versions is None:
            self._versions = MappingProxyType(message.table_versions)
        return message.build(self._versions)

    @property
    def rule_log(self) -> Sequence[RuleChange]:
        """Fetch the rule changes so far."""
        return [change.build() for change in self._remote.get("/contract/rules", RULES).log]

    def last_reload(self, table: str) -> ReloadReport | None:
        """Fetch what the last reload of a table reported."""
        found = self._remote.get(f"/contract/reloads/{quote(table, safe='')}", LAST_RELOAD).last_reload
        return None if found is None else found.build()

    def move(self, world: World, report: Report) -> None:
        """Have the service do what leads to ``world``, and follow with the mirror."""
        done = self._reload(world, report.diff) if isinstance(report, ReloadReport) else self._change(report)
        if done != report:
            raise self._remote.error("did something else than it was asked to", value=done)
        self.world = world
        self._moves += 1
        self._versions = None  # a world's versions are an object of its own
        self._answers.clear()

    def _reload(self, world: World, diff: Diff) -> ReloadReport:
        rows = msgspec.Raw(rows_text(world.tables[diff.table].rows))
        body = {"table": diff.table, "rows": rows, "version": diff.new_version}
        return self._remote.admin("POST", "/admin/reload-table", REPORT, body).build()

    def _change(self, change: RuleChange) -> RuleChange:
        if change.added:
            return self._remote.admin("POST", "/admin/rules", CHANGE, change.rule.to_dict()).build()
        query = dict(zip(("from", "to", "relation"), change.rule.triple, strict=True))
        return self._remote.admin("DELETE", "/admin/rules", CHANGE, query=query).build()


def _checked(url: str) -> str:
    """Return the URL without a slash at its end; one that could not be called, or holds a secret, is refused."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InputError(f"not a URL: {error}", value=url) from None
    if parts.userinfo:
        raise InputError("a URL holds no password: the operator's token comes from the environment")
    if parts.scheme not in {"http", "https"} or not parts.host or parts.query or parts.fragment:
        raise InputError("a service's URL is http://HOST:PORT", value=url)
    return url.rstrip("/")
