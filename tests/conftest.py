"""Trace files to read, a way to read them, and a seeded way to damage them."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRACES = Path(__file__).parent / "data" / "traces"


@pytest.fixture
def traces() -> Path:
    """The folder of sample traces, a folder a format."""
    return TRACES


@pytest.fixture
def read_trace() -> Callable[[Path, str], tuple[list[Any], list[Any]]]:
    """Read a file with a reader by name: the rows, and the faults found."""
    import invsim.traces.readers  # noqa: F401
    from invsim.traces.reader import Faults, get_reader

    def read(path: Path, name: str) -> tuple[list[Any], list[Any]]:
        faults = Faults(str(path))
        return list(get_reader(name).read(path, faults)), faults.found

    return read


class Mutator:
    """Damages files the way disks, networks, editors and other programs do; the same seed, the same damage."""

    STRANGE = (
        None, True, False, 0, -1, 7, 10**30, 1.5, 1e300, float("nan"), float("inf"), "", "x", "12", "\ud800", "\0",
        [], {}, [None], [[]], [{}], {"": None}, {"type": "text"}, ["x"], {"name": {"name": 1}},
    )  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def damage(self, data: bytes) -> bytes:
        """Return the data with one to three damages of any kind."""
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            data = self.random.choice(self.KINDS)(self, data)
        return data

    def damage_line(self, line: bytes) -> bytes:
        """Return a line damaged, but still one line or none."""
        kind = self.random.choice(
            (Mutator.flip, Mutator.cut_tail, Mutator.cut_middle, Mutator.zero, Mutator.swap_types)
        )
        return kind(self, line).replace(b"\n", b" ").replace(b"\r", b" ")

    def flip(self, data: bytes) -> bytes:
        found = bytearray(data)
        for _ in range(self.random.randint(1, 4) if found else 0):
            at = self.random.randrange(len(found))
            found[at] = self.random.choice((found[at] ^ (1 << self.random.randrange(8)), self.random.randrange(256)))
        return bytes(found)

    def cut_tail(self, data: bytes) -> bytes:
        return data[: self.random.randint(0, len(data))]

    def cut_middle(self, data: bytes) -> bytes:
        start, end = self._span(data)
        return data[:start] + data[end:]

    def zero(self, data: bytes) -> bytes:
        start, end = self._span(data)
        return data[:start] + bytes(end - start) + data[end:]

    def insert(self, data: bytes) -> bytes:
        at = self.random.randint(0, len(data))
        what = self.random.choice(
            (b"\xff\xfe", b"\xef\xbb\xbf", b"\0\0\0", b'"', b"}", b"{", b"[" * 3000, b"9" * 5000, b"\\")
        )
        return data[:at] + what + data[at:]

    def lines(self, data: bytes) -> bytes:
        found = data.split(b"\n")
        at, other = self.random.randrange(len(found)), self.random.randrange(len(found))
        what = self.random.randrange(5)
        if what == 0:
            del found[at]
        elif what == 1:
            found.insert(other, found[at])
        elif what == 2:
            found[at], found[other] = found[other], found[at]
        elif what == 3:
            return data.replace(b"\n", b"\r\n")
        else:
            found[at : at + 2] = [b"".join(found[at : at + 2])]
        return b"\n".join(found)

    def swap_types(self, data: bytes) -> bytes:
        """Put something strange in place of a value, or take it away, or write it twice."""
        lines = data.split(b"\n")
        at = self.random.randrange(len(lines))
        for target in (lines[at], data):
            try:
                value = json.loads(target)
            except (ValueError, RecursionError):
                continue
            held = [value]
            self._swap(held)
            written = json.dumps(held[0], indent=1 if b"\n" in target else None).encode()
            return written if target is data else b"\n".join([*lines[:at], written, *lines[at + 1 :]])
        return data

    KINDS = (flip, flip, cut_tail, cut_middle, zero, insert, lines, swap_types, swap_types, swap_types)

    def _swap(self, held: list[Any]) -> None:
        nodes: list[tuple[Any, Any]] = [(held, 0)]
        for holder, key in nodes:
            value = holder[key]
            if isinstance(value, dict):
                nodes.extend((value, each) for each in value)
            elif isinstance(value, list):
                nodes.extend((value, each) for each in range(len(value)))
        holder, key = self.random.choice(nodes)
        what = self.random.randrange(10)
        if what == 0 and isinstance(holder, dict):
            del holder[key]
        elif what == 1 and isinstance(holder, list) and holder is not held:
            holder.append(holder[key])
        elif what == 2:
            holder[key] = [holder[key]]
        elif what == 3:
            holder[key] = json.dumps(holder[key])
        elif what == 4:
            deep: Any = "bottom"
            for _ in range(300):
                deep = [deep]
            holder[key] = deep
        else:
            holder[key] = self.random.choice(self.STRANGE)

    def _span(self, data: bytes) -> tuple[int, int]:
        start = self.random.randint(0, len(data))
        return start, min(len(data), start + self.random.randint(1, 1 + len(data) // 8))


def called(reader: Any, path: Path) -> set[str]:
    """What was called in a file and with what; an answer may be lost with the line that it stood on.

    A span of the model and one of the tool tell of the same call, on two lines; with what is then told by either.
    """
    from invsim.traces.reader import Faults

    told_twice = getattr(reader, "name", None) == "otlp"
    rows = reader.read(path, Faults(str(path)))
    return {json.dumps([row.call_id, row.tool, None if told_twice else row.request], sort_keys=True) for row in rows}


@pytest.fixture
def lines_lost(tmp_path: Path) -> Callable[[Any, Path, int], list[tuple[int, int]]]:
    """Damage one line of a file, time and again: (seed, line) wherever a row of another line was missing after it."""

    def lost(reader: Any, path: Path, rounds: int) -> list[tuple[int, int]]:
        lines = path.read_bytes().splitlines()
        damaged, found = tmp_path / "damaged.jsonl", []
        rows = []
        for line in lines:
            damaged.write_bytes(line + b"\n")
            rows.append(called(reader, damaged))
        assert any(rows), f"{path} holds no row"
        for seed in range(rounds):
            mutator = Mutator(seed)
            at = mutator.random.randrange(len(lines))
            damaged.write_bytes(b"\n".join([*lines[:at], mutator.damage_line(lines[at]), *lines[at + 1 :], b""]))
            if not set().union(*(each for number, each in enumerate(rows) if number != at)) <= called(reader, damaged):
                found.append((seed, at))
        return found

    return lost


@pytest.fixture
def mutator() -> type[Mutator]:
    return Mutator
