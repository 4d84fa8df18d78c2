"""TOML files decoded into typed structures, with errors that name file, line, field, value and what is right."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from invsim.errors import InputError

T = TypeVar("T")

_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+|\.\.\.)\]")
_HEADER = re.compile(r"^\s*(\[\[|\[)\s*(?P<path>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGN = re.compile(r"^\s*(?P<key>[\w.\"'-]+)\s*=")


@dataclass(frozen=True)
class Source:
    """A text and the name people know it by; it can say on which line a field stands."""

    name: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read a file; an unreadable one is an ``InputError`` that names it."""
        try:
            return cls(str(path), path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"not UTF-8 text: {error.reason} at byte {error.start}", where=str(path)) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None

    def where(self, field: str) -> str:
        """Return "file, line n, field" for a dotted path such as ``drift[1].after_episode``."""
        line = _line_of(self.text, field)
        at = f", line {line}" if line else ""
        return f"{self.name}{at}, {field}" if field else f"{self.name}{at}"


def decode(source: Source, kind: type[T]) -> T:
    """Decode TOML into ``kind``; every failure is one ``InputError`` with its place.

    Raises
    ------
    InputError
        On TOML syntax, a wrong type, an unknown or a missing field.
    """
    try:
        data = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}", where=source.name) from None
    return convert(source, data, kind)


def convert(source: Source, data: Any, kind: type[T]) -> T:
    """Convert already parsed TOML into ``kind`` with located errors."""
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        field = _complete(path.rstrip("`").removeprefix("$").removeprefix("."), message)
        value = _value_at(data, field)
        raise InputError(message.replace("`", ""), where=source.where(field), value=value) from None


def _complete(field: str, message: str) -> str:
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if unknown:
        return f"{field}.{unknown.group(1)}" if field else unknown.group(1)
    return field


def _value_at(data: Any, field: str) -> object:
    for match in _STEP.finditer("." + field if field else ""):
        name, index = match.group("name"), match.group("index")
        try:
            data = data[name] if name else data[int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return data if not isinstance(data, dict | list) else None


def _line_of(text: str, field: str) -> int | None:
    """Line on which a field stands, or the nearest enclosing table header; None for the whole file."""
    steps = [m.group("name") or int(m.group("index")) for m in _STEP.finditer("." + field) if m.group("index") != "..."]
    best: tuple[int, int] | None = None
    header: list[str | int] = []
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        here: list[str | int] | None = None
        if heading := _HEADER.match(line):
            name = heading.group("path")
            header = [part.strip("\"' ") for part in _split(name)]
            if line.lstrip().startswith("[["):
                counts[name] = counts.get(name, -1) + 1
                header.append(counts[name])
            here = header
        elif assign := _ASSIGN.match(line):
            here = header + [part.strip("\"'") for part in _split(assign.group("key"))]
        if here and steps[: len(here)] == here and (best is None or len(here) > best[0]):
            best = (len(here), number)
    return best[1] if best else None


def _split(path: str) -> list[str]:
    return re.findall(r"\"[^\"]*\"|'[^']*'|[^.\"']+", path)
