"""The messages of the service as typed structures, and JSON read into them: one strict reader for both ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec

from invsim.errors import InputError, one_line
from invsim.world.domain import RuleFile
from invsim.world.server import ReloadReport, RuleChange
from invsim.world.tables import Diff, Scalar
from invsim.world.tables import Rows as TableRows
from invsim.world.wire import CacheHint, Response, Suggestion, Value

T = TypeVar("T")

LONGEST_NAME = 200
"""Characters of a table's name or version in a request."""

STATE = "Contract-State"
"""Header of a business answer: the epoch and the number of changes since it began, as EPOCH/NUMBER."""

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
Rows: TypeAlias = dict[str, dict[str, Scalar | list[Scalar]]]


def rows_text(rows: TableRows) -> bytes:
    """Return a table's rows as they are sent, in their order."""
    return msgspec.json.encode({key: dict(row) for key, row in rows.items()})


class Reader(Generic[T]):
    """Reads JSON of one type.

    Stricter than most: UTF-8 without a mark, numbers that are finite, no object with one key twice (which of the two
    counts is what a proxy, a log and a policy may each see differently). Nesting is bounded by the type, and by the
    decoder where a wrong field is skipped over.
    """

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def read(self, body: bytes) -> T:
        """Return the value; what is wrong with the text is an ``InputError``."""
        try:
            value = self._decoder.decode(body)
            json.loads(body, object_pairs_hook=_check_keys)
        except msgspec.ValidationError as error:
            raise InputError(one_line(str(error)).replace("`", "'")) from None
        except msgspec.DecodeError as error:
            raise InputError(f"not valid JSON: {one_line(str(error))}") from None
        except RecursionError:
            raise InputError("nested too deeply") from None
        return value


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise InputError("an object has the same key twice", value=name[:LONGEST_NAME])
        seen.add(name)


# To the service -----------------------------------------------------------------------------------------------------


class ReloadMessage(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /admin/reload-table."""

    table: Name
    rows: Rows
    version: Name | None = None


FIELDS: Reader[dict[str, Value]] = Reader(dict[str, Value])
RELOAD: Reader[ReloadMessage] = Reader(ReloadMessage)
RULE: Reader[RuleFile] = Reader(RuleFile)


# From the service ---------------------------------------------------------------------------------------------------


class _DiffMessage(msgspec.Struct):
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class ReportMessage(msgspec.Struct):
    """A reload report as sent."""

    table: str
    old_version: str
    new_version: str
    diff: _DiffMessage
    affected_downstream: tuple[str, ...]

    def build(self) -> ReloadReport:
        """Return the report."""
        diff = self.diff
        changes = Diff(self.table, self.old_version, self.new_version, diff.added, diff.removed, diff.changed)
        return ReloadReport(changes, self.affected_downstream)


class LastReloadMessage(msgspec.Struct):
    """The answer of GET /contract/reloads/{table}."""

    last_reload: ReportMessage | None


class ChangeMessage(msgspec.Struct):
    """A rule change as sent."""

    rule: RuleFile
    added: bool
    rules_version: str

    def build(self) -> RuleChange:
        """Return the change."""
        return RuleChange(self.rule.build(), self.added, self.rules_version)


class RulesMessage(msgspec.Struct):
    """The answer of GET /contract/rules."""

    log: list[ChangeMessage]


class _TableMessage(msgspec.Struct):
    version: str
    rows: Rows


class WorldMessage(msgspec.Struct):
    """The answer of GET /admin/world and of POST /admin/reset."""

    domain: str
    level: str
    state: str
    tables: dict[str, _TableMessage]
    rules: list[RuleFile]


class _StampMessage(msgspec.Struct):
    table: str
    version: str


class _SuggestionMessage(msgspec.Struct):
    type: str
    parameters: dict[str, Value]
    cache_hint: CacheHint
    table: str | None = None
    tables: list[_StampMessage] | None = None

    def build(self) -> Suggestion:
        vector = None if self.tables is None else tuple((each.table, each.version) for each in self.tables)
        return Suggestion(self.type, self.parameters, self.cache_hint, self.table, vector)


class _FeedbackMessage(msgspec.Struct):
    suggestions: list[_SuggestionMessage] = []


class ResponseMessage(msgspec.Struct):
    """A business response as sent."""

    success: bool
    error: str = ""
    recovery_feedback: _FeedbackMessage = msgspec.field(default_factory=_FeedbackMessage)
    table_versions: dict[str, str] | None = None
    rules_version: str | None = None

    def build(self, versions: Mapping[str, str] | None) -> Response:
        """Return the response, its table versions being ``versions``: equal ones may be one object."""
        suggestions = tuple(each.build() for each in self.recovery_feedback.suggestions)
        return Response(self.success, self.error, suggestions, versions, self.rules_version)


class ProblemMessage(msgspec.Struct):
    """Problem details (RFC 9457) as sent."""

    title: str
    detail: str = ""
