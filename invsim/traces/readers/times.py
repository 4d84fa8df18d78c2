"""Points in time as logs write them, in nanoseconds since 1970."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

_LARGEST = 2**63 - 1
_UNITS = ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3), (_LARGEST, 1))
"""Up to the first figure a number counts seconds, up to the next milliseconds, microseconds, nanoseconds."""

_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?\s*(Z|z|UTC|[+-]\d\d:?\d\d)?")


class Moment(NamedTuple):
    """Nanoseconds since 1970 in UTC; ``naive`` if the text named no zone and was taken for UTC."""

    ns: int
    naive: bool = False


def moment(value: Any) -> Moment | None:
    """Return a point in time written as ISO 8601 or as a count of s, ms, µs or ns, the unit told by its size.

    Parameters
    ----------
    value : object
        Text, whole or fractional number. Zero and negative numbers are no times.

    Returns
    -------
    Moment or None
        None for what is no time, or lies outside the years 1970 to 2262.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _from_number(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if re.fullmatch(r"\d{1,25}(\.\d{1,12})?", text, re.ASCII):
        return _from_number(float(text) if "." in text else int(text))
    return _from_iso(text)


def _from_number(value: float) -> Moment | None:
    if not 0 < value < _LARGEST or (isinstance(value, float) and not math.isfinite(value)):
        return None
    factor = next(factor for bound, factor in _UNITS if value < bound)
    whole = int(value)
    ns = whole * factor + (round((value - whole) * factor) if isinstance(value, float) else 0)
    return Moment(ns) if 0 < ns <= _LARGEST else None


def _from_iso(text: str) -> Moment | None:
    found = _ISO.fullmatch(text)
    if not found:
        return None
    whole, fraction, zone = found.groups()
    written = {None: "+00:00", "Z": "+00:00", "z": "+00:00", "UTC": "+00:00"}.get(zone, zone)
    try:
        at = datetime.fromisoformat(f"{whole.replace(' ', 'T')}{written}")
        seconds = (at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except (ValueError, OverflowError):
        return None
    ns = int(seconds) * 10**9 + int((fraction or "0").ljust(9, "0"))
    return Moment(ns, naive=zone is None) if 0 < ns <= _LARGEST else None
