"""An object of unknown making read field by field: what has the wrong type is noted and counts as absent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from invsim.traces.reader import Faults

LARGEST = 2**63 - 1

_NAMES = {dict: "an object", list: "an array", str: "text", bool: "a truth value", int: "a number", float: "a number"}


class Fields:
    """A JSON object with its place in the file.

    Parameters
    ----------
    data : dict
    place : str
        "line 3" or "document"; empty for a whole file.
    faults : Faults
        Takes the fields of the wrong type.
    """

    __slots__ = ("data", "faults", "place")

    def __init__(self, data: dict[str, Any], place: str, faults: Faults) -> None:
        self.data, self.place, self.faults = data, place, faults

    def __contains__(self, key: str) -> bool:
        return self.data.get(key) is not None

    def at(self, step: str) -> str:
        """Return the place of something within."""
        if not self.place:
            return step
        return f"{self.place}{step}" if step.startswith("[") else f"{self.place}, {step}"

    def text(self, *keys: str) -> str | None:
        """Return the first text among some keys; a whole number counts as text, for ids are written both ways."""
        for key in keys:
            value = self.data.get(key)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            if value is not None and value != "":
                self._wrong(key, value, "text")
        return None

    def count(self, *keys: str) -> int | None:
        """Return the first count among some keys: 0 to 2⁶³ - 1, also written as text or as 3.0."""
        for key in keys:
            value = self.data.get(key)
            if (found := as_count(value)) is not None:
                return found
            if value is not None:
                self._wrong(key, value, "a count")
        return None

    def flag(self, key: str) -> bool | None:
        """Return a truth value."""
        value = self.data.get(key)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(key, value, "a truth value")
        return None

    def table(self, key: str) -> Fields | None:
        """Return an inner object."""
        value = self.data.get(key)
        if isinstance(value, dict):
            return Fields(value, self.at(key), self.faults)
        if value is not None:
            self._wrong(key, value, "an object")
        return None

    def rows(self, key: str) -> Iterator[Fields]:
        """Yield the objects of an inner array; what is no object is noted."""
        value = self.data.get(key)
        if value is None:
            return
        if not isinstance(value, list):
            self._wrong(key, value, "an array", lost=True)
            return
        for index, each in enumerate(value):
            place = self.at(f"{key}[{index}]")
            if isinstance(each, dict):
                yield Fields(each, place, self.faults)
            else:
                self.faults.add(place, "wrong-type", f"{_name(each)} where an object should be")

    def _wrong(self, key: str, value: Any, right: str, *, lost: bool = False) -> None:
        self.faults.add(self.at(key), "wrong-type", f"{_name(value)} where {right} should be", lost=lost)


def as_count(value: Any) -> int | None:
    """Return a whole number from 0 to 2⁶³ - 1 that is written as a number or as text, or None."""
    digits = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20
    if digits or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= LARGEST else None


def _name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, int | float) and not isinstance(value, bool) and as_count(value) is None:
        return f"the number {str(value)[:24]}" if abs(value) < 10**20 else "a huge number"
    return _NAMES.get(type(value), type(value).__name__)
