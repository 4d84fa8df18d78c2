"""Calls as columns: the Parquet side of the native format, checked batch by batch.

Composite fields are JSON text in Parquet. Few of their values differ, so each distinct text of a batch is decoded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from invsim.traces.reader import Faults
from invsim.traces.schema import COMPOSITE, Call, ErrorSource, Fix, Op, OrderSource, Outcome, ParseStatus

if TYPE_CHECKING:
    import polars as pl

KEPT, SHORT = 1 << 16, 1000
"""Texts whose reading is kept, and characters of the longest of them."""

REQUIRED = tuple(field.name for field in msgspec.structs.fields(Call) if field.required)
DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Call) if not field.required}
NULLABLE = frozenset(name for name, default in DEFAULTS.items() if default is None)
ALLOWED = {
    "order_source": get_args(OrderSource),
    "parse_status": get_args(ParseStatus),
    "outcome": get_args(Outcome),
    "error_source": get_args(ErrorSource),
}
CHECKED = (*REQUIRED, *ALLOWED, "request", "hint", "injected", "warnings")
"""Columns that decide whether a row can be read. A response that is not JSON is left out of its row."""

_INTEGERS = frozenset({"trial", "step", "seq", "status_code", "t_start", "t_end", "transport_retries"})
_TYPES: dict[str, Any] = {"hint": tuple[Op, ...], "injected": tuple[Fix, ...], "warnings": tuple[str, ...]}
_DECODERS = {name: msgspec.json.Decoder(kind).decode for name, kind in _TYPES.items()}
_decode_any = msgspec.json.Decoder().decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def dtypes() -> dict[str, Any]:
    """Return the name and type of each column, in order."""
    import polars as pl

    whole = {name for name in Call.__struct_fields__ if name in _INTEGERS or name.endswith("_tokens")}
    return {name: pl.Int64 if name in whole else pl.String for name in Call.__struct_fields__}


def frame(calls: Sequence[Call], names: Sequence[str] = Call.__struct_fields__) -> pl.DataFrame:
    """Return calls as columns, all or some; an empty composite is null."""
    import polars as pl

    types = dtypes()
    columns: dict[str, list[Any]] = {}
    for name in names:
        values = [getattr(call, name) for call in calls]
        columns[name] = [_text(value) for value in values] if name in COMPOSITE else values
    return pl.DataFrame(columns, schema={name: types[name] for name in names})


def _text(value: object) -> str | None:
    return None if value is None or value == () else msgspec.json.encode(value).decode()


def decode(name: str, text: str | None) -> Any:
    """Return the value of a composite field; unreadable text is one of the errors ``misfits`` looks for."""
    if text is None:
        return DEFAULTS[name]
    if name not in _DECODERS:
        return _decode_any(text)
    return _decode_short(name, text) if len(text) <= SHORT else _DECODERS[name](text)


@lru_cache(maxsize=KEPT)
def _decode_short(name: str, text: str) -> Any:
    return _DECODERS[name](text)


# Checking -----------------------------------------------------------------------------------------------------------


def misfits(batch: pl.DataFrame, first: int, faults: Faults) -> pl.Series | None:
    """Note the rows that cannot be read, and return which can; None where all can.

    Parameters
    ----------
    batch : DataFrame
        At least the columns in ``CHECKED``.
    first : int
        Number of the batch's first row in its file.
    faults : Faults
    """
    good: pl.Series | None = None
    for name in dict.fromkeys(CHECKED):
        column = batch[name]
        wrong = _wrong(name, column)
        if wrong is None or not wrong.any():
            continue
        good = ~wrong if good is None else good & ~wrong
        for at in wrong.arg_true():
            value = column[at]
            kind = "missing-field" if value is None else "wrong-value"
            message = "needed in every row, not null" if value is None else _complaint(name, value)
            faults.add(f"row {first + at}, {name}", kind, message)
    return good


def _wrong(name: str, column: pl.Series) -> pl.Series | None:
    """Return which values of a column cannot be read; None for none."""
    if name in ALLOWED:
        return ~one_of(column, ALLOWED[name])
    if name in REQUIRED:
        return column.is_null() if column.null_count() else None
    if name not in COMPOSITE or column.null_count() == len(column):
        return None
    bad = [text for text in column.unique() if text is not None and not _readable(name, text)]
    return column.is_in(bad).fill_null(value=False) if bad else None


def one_of(column: pl.Series, values: Sequence[str]) -> pl.Series:
    """Return whether each row holds one of a few values; null does not."""
    found = column.eq_missing(values[0])
    for value in values[1:]:
        if found.all():
            break
        found |= column.eq_missing(value)
    return found


def _readable(name: str, text: str) -> bool:
    return _readable_short(name, text) if len(text) <= SHORT else _try(name, text)


@lru_cache(maxsize=KEPT)
def _readable_short(name: str, text: str) -> bool:
    return _try(name, text)


def _try(name: str, text: str) -> bool:
    try:
        decode(name, text)
    except _UNREADABLE:
        return False
    return True


def _complaint(name: str, value: str) -> str:
    if name in ALLOWED:
        return f"{value!r} is none of {', '.join(ALLOWED[name])}"
    try:
        decode(name, value)
    except RecursionError:
        return "nested too deeply"
    except _UNREADABLE as error:
        return str(error).replace("`", "")
    return "cannot be read"


def calls_of(batch: pl.DataFrame, first: int, faults: Faults) -> Iterator[Call]:
    """Yield the calls of a batch, but for rows that cannot be read."""
    good = misfits(batch, first, faults)
    kept = list(range(batch.height)) if good is None else good.arg_true().to_list()
    rows = batch if good is None else batch.filter(good)
    names = rows.columns
    for at, row in zip(kept, rows.iter_rows(), strict=True):
        fields = dict(zip(names, row, strict=True))
        for name in COMPOSITE:
            fields[name] = (
                _response(fields[name], first + at, faults) if name == "response" else decode(name, fields[name])
            )
        yield Call(**fields)


def _response(text: str | None, row: int, faults: Faults) -> Any:
    try:
        return decode("response", text)
    except _UNREADABLE:
        faults.add(f"row {row}, response", "unreadable-response", "not JSON, and left out of its row", lost=False)
        return None
