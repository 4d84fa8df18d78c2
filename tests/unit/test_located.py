"""Located errors: file, line, field, value and what is right, in one line, for any fault in a TOML file."""

import contextlib
import datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invsim.errors import InputError
from invsim.located import Source, convert, decode


class Drift(msgspec.Struct, forbid_unknown_fields=True):
    after: int
    put: dict[str, dict[str, str]] = {}
    rule: dict[str, str] = {}


class Window(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    first: int = 0


class Limits(msgspec.Struct, forbid_unknown_fields=True):
    low: float = 0.0
    window: Window | None = None


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    stream: str = ""
    arms: list[str] = []
    drift: list[Drift] = []
    limits: Limits = msgspec.field(default_factory=Limits)
    tasks: dict[str, Window] = {}


TEXT = """\
# A manifest.
name = "payments"
stream = "G k1 N"
arms = ["A1", "A2"]

[limits]   # a table
low = 0.5
window = { name = "all", first = 3 }

[[drift]]
after = 11

  [[ drift ]]  # the second, indented
  after = 23
  rule = { from = "a", to = "b" }

[[drift]]
after = 30

[tasks.G]
name = "governed"

[tasks."k 1"]
name = "funding"
"""


def fault(text: str) -> str:
    with pytest.raises(InputError) as caught:
        decode(Source("m.toml", text), Manifest)
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert TEXT.count(old) == 1, old
    return fault(TEXT.replace(old, new))


def test_the_text_itself_is_right() -> None:
    manifest = decode(Source("m.toml", TEXT), Manifest)
    assert [each.after for each in manifest.drift] == [11, 23, 30]
    assert manifest.tasks["k 1"].name == "funding"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "payments"', "name = 5", "m.toml, line 2, name: Expected str, got int (got 5)"),
        ("low = 0.5", 'low = "x"', "m.toml, line 7, limits.low: Expected float, got str (got 'x')"),
        ("low = 0.5", "low = true", "m.toml, line 7, limits.low: Expected float, got bool (got True)"),
        ("after = 23", 'after = "x"', "m.toml, line 14, drift[1].after: Expected int, got str (got 'x')"),
        ("after = 23", "after = 2.5", "m.toml, line 14, drift[1].after: Expected int, got float (got 2.5)"),
        ("after = 30", "after = []", "m.toml, line 18, drift[2].after: Expected int, got array"),
        ('"A1", "A2"', '"A1", 2', "m.toml, line 4, arms[1]: Expected str, got int (got 2)"),
        ("first = 3", 'first = "x"', "m.toml, line 8, limits.window.first: Expected int, got str (got 'x')"),
    ],
)
def test_a_value_of_the_wrong_type(old: str, new: str, message: str) -> None:
    assert changed(old, new) == message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('stream = "G', 'streem = "G', "m.toml, line 3, streem: Object contains unknown field streem (got 'G k1 N')"),
        ("low = 0.5", "lowe = 0.5", "m.toml, line 7, limits.lowe: Object contains unknown field lowe (got 0.5)"),
        ("after = 23", "after = 23\n  x = 1", "m.toml, line 15, drift[1].x: Object contains unknown field x (got 1)"),
        ("first = 3", "frist = 3", "m.toml, line 8, limits.window.frist: Object contains unknown field frist (got 3)"),
    ],
)
def test_an_unknown_field_is_shown_with_its_value(old: str, new: str, message: str) -> None:
    assert changed(old, new) == message


def test_a_missing_field_is_located_at_what_lacks_it() -> None:
    assert changed("after = 30", "") == "m.toml, line 17, drift[2]: Object missing required field after"
    assert changed('name = "payments"', "") == "m.toml: Object missing required field name"


def test_syntax_is_told_with_line_and_column() -> None:
    assert changed("low = 0.5", "low = ") == "m.toml: not valid TOML: Invalid value (at line 7, column 7)"
    assert changed("after = 11", "after = 11\nafter = 12").startswith(
        "m.toml: not valid TOML: Cannot overwrite a value"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\nlimits.low = "y"', "m.toml, line 2, limits.low: Expected float, got str (got 'y')"),
        ('name = "x"\nlimits . low = "y"', "limits.low: Expected float, got str (got 'y')"),
        ('name = "x"\n\n[limits]\nwindow.name = 3', "m.toml, line 4, limits.window.name: Expected str"),
        ('name = "x"\n[limits.window]\n\nname = 3', "m.toml, line 4, limits.window.name: Expected str"),
        ('name = "x"\n["limits"."window"]\n"name" = 3', "m.toml, line 3, limits.window.name: Expected str"),
        ('name = "x"\ndrift = [\n  { after = 1 },\n  { after = "x" },\n]', "m.toml, line 2, drift[1].after: "),
        ('name = "x"\r\n\r\n[limits]\r\nlow = "y"\r\n', "m.toml, line 4, limits.low: "),
        ("name = 2026-01-02", f"m.toml, line 1, name: Expected str, got date (got {datetime.date(2026, 1, 2)!r})"),
    ],
)
def test_other_ways_to_write_it(text: str, message: str) -> None:
    assert message in fault(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('name = "x"\n[tasks.G]\nname = "g"\n[tasks.C]\nname = 3', 5),
        ('name = "x"\n[tasks.G]\nname = "g"\n[tasks.C]\nnmae = "c"\nname = "c"', 5),
        ('name = "x"\n[tasks]\nG = { name = "g" }\nC = { name = 3 }', 4),
        ('name = "x"\n[tasks.G]\nname = "g"\n[tasks."k 1"]\nname = 3', 5),
        ('name = "x"\ntasks.G.name = "g"\ntasks.C.name = 3', 3),
    ],
)
def test_a_fault_under_a_name_of_the_writers_own_is_on_its_line_too(text: str, line: int) -> None:
    assert fault(text).startswith(f"m.toml, line {line}, tasks")


@pytest.mark.parametrize(
    "text",
    [
        'name = "x"\nstream = """\n[limits]\nlow = 1\n"""\n[limits]\nlow = "y"',
        'name = "x"\nstream = """\nlimits.low = 1\n\n"""\n\nlimits.low = "y"',
        'name = "x"\narms = [\n  "A1", # [limits]\n]\n\n[limits]\nlow = "y"',
        'name = "x" # \u2028 \x85\n\n\n\n[limits]\nlow = "y"\n',
    ],
    ids=["table in a string", "key in a string", "comment", "exotic line ends"],
)
def test_what_only_looks_like_a_line_of_toml_misleads_nobody(text: str) -> None:
    line = next(at for at, each in enumerate(text.split("\n"), start=1) if 'low = "y"' in each)
    assert fault(text).startswith(f"m.toml, line {line}, limits.low: ")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('arms = [\n"A1",\n2,\n]\nname = "x"', "m.toml, line 1, arms[1]: "),
        ('arms = [\n"A1",\n]\nname = 3\nstream = """\n\n\n\n"""', "m.toml, line 4, name: "),
        (
            'name = "x"\n[tasks.a]\nname = "a"\n[tasks.b]\n[tasks.c]\nname = "c"',
            "m.toml, line 4, tasks.b: Object missing",
        ),
        ('name = "x"\n[tasks."a.b"]\nname = 3', 'm.toml, line 3, tasks."a.b".name: '),
    ],
    ids=["inside a statement", "beside long ones", "a table that lacks a field", "a quoted key"],
)
def test_the_line_is_where_the_statement_begins(text: str, start: str) -> None:
    assert fault(text).startswith(start)


def test_convert_locates_what_was_parsed_elsewhere() -> None:
    with pytest.raises(InputError, match=r"^m\.toml, line 7, limits\.low: Expected float"):
        convert(Source("m.toml", TEXT), {"name": "x", "limits": {"low": "y"}}, Manifest)


def test_the_error_carries_what_it_prints() -> None:
    with pytest.raises(InputError) as caught:
        decode(Source("m.toml", TEXT.replace("low = 0.5", 'low = "x"')), Manifest)
    error = caught.value
    assert (error.what, error.where, error.value) == (
        "Expected float, got str",
        "m.toml, line 7, limits.low",
        "x",
    )


# Files ---------------------------------------------------------------------------------------------------------------


def test_a_file_is_known_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text("name = 1", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        decode(Source.read(path), Manifest)
    assert str(caught.value) == f"{path}, line 1, name: Expected str, got int (got 1)"


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.toml: cannot be read: No such file or directory"):
        Source.read(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        Source.read(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"')
    with pytest.raises(InputError, match=r"latin\.toml: not UTF-8 text: .* at byte 11$"):
        Source.read(tmp_path / "latin.toml")


# Any text at all -----------------------------------------------------------------------------------------------------


def complaint(text: str) -> str | None:
    """What is said of a text, or None when it is right; anything but an InputError comes out as it is."""
    try:
        decode(Source("m.toml", text), Manifest)
    except InputError as error:
        return str(error)
    return None


def in_one_line(said: str | None) -> bool:
    return said is None or (said.startswith("m.toml") and len(said.splitlines()) == 1)


SNIPPETS = st.sampled_from(
    [
        *("[", "]", "[[", "]]", "{", "}", "=", ".", ",", '"', "'", '"""', "'''", "\n", "\r\n", "#", " ", "\\"),
        *("name", "drift", "tasks", "limits", "window", "low", "after", "arms", "x", "[...]", " - at `", "`"),
        *("1", "-1", "2.5", "nan", "inf", "true", "1979-05-27", "07:32:00", "0xff", "1e400", '"s"'),
    ]
)
KEYS = st.one_of(
    st.sampled_from(["name", "stream", "arms", "drift", "limits", "tasks", "after", "put", "low", "first"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4),
)
VALUES = st.recursive(
    st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.text(max_size=4), st.dates()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@given(st.text())
def test_arbitrary_text_raises_nothing_but_an_input_error(text: str) -> None:
    assert in_one_line(complaint(text))


@settings(max_examples=200)
@given(st.lists(SNIPPETS, max_size=25).map("".join))
def test_broken_toml_raises_nothing_but_an_input_error(text: str) -> None:
    assert in_one_line(complaint(text))


@settings(max_examples=200)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_parsed_content_raises_nothing_but_an_input_error(data: dict) -> None:
    with contextlib.suppress(InputError):
        convert(Source("m.toml", TEXT), data, Manifest)


@pytest.mark.parametrize("key", ["two\\nlines", "return\\rfeed", "\\u2028"])
def test_a_complaint_is_one_line_whatever_a_key_holds(key: str) -> None:
    assert in_one_line(complaint(f'name = "x"\n"{key}" = 1'))


@pytest.mark.parametrize(
    "text",
    [
        "name = " + "9" * 5000,
        "name = " + "[" * 3000 + "]" * 3000,
        "name = " + "{ a = " * 3000 + "1" + " }" * 3000,
        'name = "x"\n"[' + "9" * 5000 + ']" = 1',
    ],
    ids=["long integer", "deep array", "deep table", "digits in a key"],
)
def test_hostile_text_raises_nothing_but_an_input_error(text: str) -> None:
    assert in_one_line(complaint(text))
