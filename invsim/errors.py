"""Exceptions that carry the value at fault, so that one clear line can be printed for a person."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def one_line(text: str) -> str:
    """Return text with everything that would break a line, or not show, written as an escape."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class InvsimError(Exception):
    """Base of every error that is the caller's to mend; its text is one line, fit to be printed alone."""

    def __str__(self) -> str:
        return one_line(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        """Come back from another process as it was, whatever arguments it is made of."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[InvsimError], args: tuple[Any, ...], state: dict[str, Any]) -> InvsimError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class UnknownNameError(InvsimError):
    """A name that is not among the known ones.

    Parameters
    ----------
    kind : str
        What was named: "scenario", "model", "arm", "table" ...
    name : str
        The name that was not found.
    known : iterable of str
        What would have been right; the nearest name is suggested.
    where : str or Place, optional
        File, line and field the name stands in.
    """

    def __init__(self, kind: str, name: object, known: Iterable[str], *, where: object = "") -> None:
        self.kind, self.name, self.known = kind, name, tuple(known)
        near = difflib.get_close_matches(str(name), self.known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        place = f"{where}: " if where else ""
        super().__init__(f"{place}unknown {kind} {name!r}: {hint}known: {', '.join(self.known)}")


class InputError(InvsimError):
    """A value that is out of its range or of the wrong type, with the place it stands in.

    Parameters
    ----------
    what : str
        What is wrong and what would be right.
    where : str or Place, optional
        File, line and field.
    value : object, optional
        The offending value, echoed.
    """

    def __init__(self, what: str, *, where: object = "", value: object = None) -> None:
        self.what, self.where, self.value = what, str(where), value
        place = f"{where}: " if where else ""
        got = "" if value is None else f" (got {value!r})"
        super().__init__(f"{place}{what}{got}")


class PlannerError(InvsimError):
    """A compliance model answered something that is not an action, or not possible where it stood."""
