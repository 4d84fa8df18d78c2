"""Inspect AI logs, ``.eval`` archives and ``.json`` files, a sample at a time.

inspect-ai reads the samples: it knows the older spellings and puts back what was stored apart. The archive's members
are taken out here, so that one that is cut off costs only what it lost; and of a sample that inspect-ai refuses, the
events and messages it objects to are left out and noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from invsim.errors import InputError
from invsim.traces.reader import Faults
from invsim.traces.readers.archive import read_members
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.inspect_sample import add_events, load_sample
from invsim.traces.readers.messages import add_message
from invsim.traces.readers.records import decode, note, open_bytes, read_records
from invsim.traces.readers.salvage import salvage
from invsim.traces.readers.turns import Episode, EpisodeNames, Identity
from invsim.traces.schema import Call

_ARCHIVE = re.compile(rb"PK\x03\x04.{26}(?:_journal/|samples/|header\.json|summaries\.json)", re.DOTALL)
_JSON = tuple(re.compile(rb'"' + key + rb'"\s*:') for key in (b"version", b"eval", b"task", b"model"))
_SAMPLE = re.compile(r"samples/.*\.json", re.DOTALL)
_HEADERS = ("_journal/start.json", "header.json")
_KNOWN = re.compile(r"_journal/.*|summaries\.json|reductions\.json|(?:shards|attachments)/.*", re.DOTALL)
_EXCLUDING_CACHE = (0, 3, 184)


class _Header(NamedTuple):
    run: str
    task: str | None
    model: str | None
    excludes_cache: bool


class InspectReader:
    """Reads logs of Inspect AI."""

    name = "inspect"

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether the file is an archive with a log's members, or a JSON log."""
        return bool(_ARCHIVE.match(head)) or (
            not head.startswith(b"PK")
            and head.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"{"
            and all(key.search(head) for key in _JSON)
        )

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls of a log, sample by sample.

        Raises
        ------
        InputError
            If the file cannot be read, or inspect-ai is not installed.
        """
        require_inspect(path)
        header = _header(Fields({}, "", faults), path)
        names = EpisodeNames(faults)
        for part in _archived(path, faults) if _is_archive(path) else _written(path, faults):
            if "eval" in part.fields.data:
                header = _header(part.fields, path)
            samples = part.fields.rows("samples") if "samples" in part.fields.data else iter((part.fields,))
            for sample in samples:
                if not _is_sample(sample.data):
                    continue
                epoch = sample.count("epoch")
                name = f"{header.run}/{sample.text('id') or sample.place}/{epoch if epoch is not None else 1}"
                if admitted := names.admit(name, sample):
                    whole = part.whole and id(sample.data) not in part.torn and _is_complete(sample)
                    yield from self._episode(sample, admitted, header, path).calls(complete=whole)

    def _episode(self, sample: Fields, name: str, header: _Header, path: Path) -> Episode:
        task = sample.text("id") or sample.place
        identity = Identity(
            source_format=self.name,
            source_file=str(path),
            episode_id=name,
            task_id=f"{header.task}/{task}" if header.task else task,
            trial=sample.count("epoch"),
            model_requested=header.model,
        )
        episode = Episode(identity, sample.faults)
        loaded = load_sample(sample)
        if loaded.events:
            add_events(loaded.events, episode, excludes_cache=header.excludes_cache)
        else:
            for message in loaded.messages:
                add_message(message, episode)
        return episode


def require_inspect(path: Path) -> None:
    """Raise the ``InputError`` that says what to install, if inspect-ai is missing."""
    try:
        import inspect_ai.log  # noqa: F401
    except ImportError:
        raise InputError(
            "an Inspect log, which needs inspect-ai to be read: pip install invsim[inspect]", where=str(path)
        ) from None


class _Part(NamedTuple):
    """A sample, a header, or a whole log."""

    fields: Fields
    whole: bool
    torn: frozenset[int] = frozenset()


def _archived(path: Path, faults: Faults) -> Iterator[_Part]:
    """Yield the header and the samples of an archive; of a sample written twice, both."""

    def wanted(name: str) -> bool:
        if name in _HEADERS or _SAMPLE.fullmatch(name):
            return True
        if not _KNOWN.fullmatch(name):
            faults.add(name, "unknown-member", "no member of an Inspect log")
        return False

    for member in read_members(path, faults, wanted):
        try:
            value, doubts = decode(member.data)
        except ValueError as error:
            if member.whole:
                faults.add(member.name, "bad-member", f"not JSON: {error}")
            text = member.data.decode("utf-8", errors="replace")
            for _, found, torn in salvage(text, _is_part):
                yield _Part(Fields(found, member.name, faults), whole=False, torn=torn)
            continue
        note(doubts, member.name, faults)
        if isinstance(value, dict):
            yield _Part(Fields(value, member.name, faults), member.whole)
        else:
            faults.add(member.name, "wrong-type", "no object")


def _written(path: Path, faults: Faults) -> Iterator[_Part]:
    for place, value, torn, _ in read_records(path, faults, _is_part):
        yield _Part(Fields(value, place, faults), id(value) not in torn or "samples" in value, torn)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and ("eval" in value or "samples" in value or _is_sample(value))


def _is_sample(value: dict[str, Any]) -> bool:
    return "epoch" in value and any(key in value for key in ("messages", "events", "transcript"))


def _is_archive(path: Path) -> bool:
    with open_bytes(path) as file:
        return file.read(2) == b"PK"


def _is_complete(sample: Fields) -> bool:
    """Return whether a sample ran to its end: no limit, and no error, stopped it."""
    return not (sample.data.get("limit") or sample.data.get("error"))


def _header(fields: Fields, path: Path) -> _Header:
    told = fields.table("eval") or Fields({}, "", fields.faults)
    packages = told.table("packages")
    version = packages.text("inspect_ai") if packages else None
    return _Header(
        run=told.text("eval_id", "run_id") or path.stem,
        task=told.text("task"),
        model=told.text("model"),
        excludes_cache=_version(version) >= _EXCLUDING_CACHE,
    )


def _version(written: str | None) -> tuple[int, ...]:
    """Return the first three numbers of a version; of none, those of no version at all."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", written or "")
    return tuple(int(each) for each in found.groups()) if found else (0, 0, 0)
