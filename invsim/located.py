"""TOML files decoded into typed structures, with errors that name file, line, field, value and what is right."""

from __future__ import annotations

import copy
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from invsim.errors import InputError

T = TypeVar("T")
Step: TypeAlias = str | int
"""A key of a table, or an index into an array."""

LARGEST_LOCATED = 200_000
"""Characters; in longer texts the line is not looked for."""

MOST_PROBES = 60
"""Times that a text is parsed, at each step of the search, before the line is given up."""

_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<index>\d+|\.\.\.)\]")
_ANY = "..."


@dataclass(frozen=True)
class Source:
    """A text and the name people know it by; it can say on which line a field stands."""

    name: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read a file; an unreadable one is an ``InputError`` that names it."""
        try:
            return cls(str(path), path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise InputError(f"not UTF-8 text: {error.reason} at byte {error.start}", where=str(path)) from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"cannot be read: {reason}", where=str(path)) from None

    def where(self, *steps: Step) -> Place:
        """Return the place of a field, say of the steps "drift", 1, "after_episode"."""
        return Place(self, steps)


@dataclass(frozen=True)
class Place:
    """A field of a source; "file, line n, field" as text. The line is looked for only when the text is asked for."""

    source: Source
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        line = _line_of(self.source.text, self.steps)
        at = f", line {line}" if line else ""
        return f"{self.source.name}{at}, {path_text(self.steps)}" if self.steps else f"{self.source.name}{at}"


def path_text(steps: tuple[Step, ...]) -> str:
    """Return a path as people write it: ``drift[1].put."a b"``."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if re.fullmatch(r"[\w-]+", step) else f'"{step}"')
    return text


def parse(source: Source) -> dict[str, Any]:
    """Parse TOML; whatever is wrong with it is an ``InputError``."""
    try:
        return tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}", where=source.name) from None
    except RecursionError:
        raise InputError("not valid TOML: nested too deeply", where=source.name) from None
    except ValueError as error:
        raise InputError(f"not valid TOML: {error}", where=source.name) from None


def decode(source: Source, kind: type[T]) -> T:
    """Decode TOML into ``kind``; every failure is one ``InputError`` with its place.

    Raises
    ------
    InputError
        On TOML syntax, a wrong type, an unknown or a missing field.
    """
    return convert(source, parse(source), kind)


def convert(source: Source, data: Any, kind: type[T]) -> T:
    """Convert already parsed TOML into ``kind`` with located errors."""
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        steps = _resolve(data, kind, str(error), _steps(path))
        if unknown := re.search(r"unknown field `(.+)`$", message, re.DOTALL):
            steps = (*steps, unknown.group(1))
        value = _value_at(data, steps)
        shown = None if isinstance(value, dict | list) else value
        raise InputError(message.replace("`", ""), where=source.where(*steps), value=shown) from None
    except RecursionError:
        raise InputError("nested too deeply", where=source.name) from None


def _steps(path: str) -> tuple[Step, ...]:
    """Return the steps of a msgspec path such as ``$.drift[0].put[...]``."""
    found = ((m.group("name"), m.group("index")) for m in _STEP.finditer(path))
    return tuple(name or (index if index == _ANY else int(index)) for name, index in found)


def _resolve(data: Any, kind: type[T], complaint: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Name the keys that msgspec leaves out: halve each table until one key alone still draws the complaint."""

    def complains(at: int, keys: list[str]) -> bool:
        try:
            msgspec.convert(_with_only(data, steps[:at], keys), kind, strict=True)
        except msgspec.ValidationError as error:
            return str(error) == complaint
        return False

    for at, step in enumerate(steps):
        if step != _ANY:
            continue
        table = _value_at(data, steps[:at])
        keys = list(table) if isinstance(table, dict) else []
        while len(keys) > 1:
            half = keys[: len(keys) // 2]
            keys = half if complains(at, half) else keys[len(half) :]
        if keys:
            data, steps = _with_only(data, steps[:at], keys), (*steps[:at], keys[0], *steps[at + 1 :])
    return steps


def _with_only(data: Any, steps: tuple[Step, ...], keys: list[str]) -> Any:
    """Return the data with the table at ``steps`` cut down to some keys; what lies beside the way there is shared."""
    if not steps:
        return {key: data[key] for key in keys}
    changed = copy.copy(data)
    changed[steps[0]] = _with_only(data[steps[0]], steps[1:], keys)
    return changed


_MISSING = object()


def _value_at(data: Any, steps: tuple[Step, ...]) -> Any:
    found = _look_up(data, steps)
    return None if found is _MISSING else found


def _look_up(data: Any, steps: tuple[Step, ...]) -> Any:
    for step in steps:
        inside = (isinstance(data, dict) and step in data) or (
            isinstance(data, list) and isinstance(step, int) and step < len(data)
        )
        if not inside:
            return _MISSING
        data = data[step]
    return data


def _line_of(text: str, steps: tuple[Step, ...]) -> int | None:
    """Return the line on which a field's statement begins; that of the nearest table around it if it is not there.

    The parser itself tells: it is the line that turns a text without the field into one that has it.
    """
    if len(text) > LARGEST_LOCATED:
        return None
    lines = text.split("\n")
    while steps and _prefix_has(lines, len(lines), steps) is not True:
        steps = steps[:-1]
    if not steps:
        return None
    low, high = 0, len(lines)  # parsable prefixes: the field is absent after ``low`` lines, present after ``high``
    for _ in range(MOST_PROBES):
        if high - low <= 1:
            return low + 1
        middle = (low + high) // 2
        candidates = [*range(middle, low, -1), *range(middle + 1, high)]  # a prefix may end inside a statement
        for middle in candidates[:MOST_PROBES]:
            present = _prefix_has(lines, middle, steps)
            if present is not None:
                low, high = (low, middle) if present else (middle, high)
                break
        else:
            return low + 1 if len(candidates) <= MOST_PROBES else None
    return None


def _prefix_has(lines: list[str], count: int, steps: tuple[Step, ...]) -> bool | None:
    """Whether the first ``count`` lines hold the field; None if they are not TOML by themselves."""
    try:
        data = tomllib.loads("\n".join(lines[:count]) + "\n")
    except (ValueError, RecursionError):
        return None
    return _look_up(data, steps) is not _MISSING
