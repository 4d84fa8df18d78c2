"""Domains: the two that ship, one of a third party's, and what a faulty file says."""

from pathlib import Path

import pytest

import invsim.world.domain as domain_module
from invsim.errors import InputError, InvsimError, UnknownNameError
from invsim.located import Source
from invsim.world import Domain, Request, Rule, Shape, Table, load_domain
from invsim.world.domain import domain_names, parse_domain, register_domain
from invsim.world.policies import Lookup

TEXT = """\
name = "library"
title = "Loans"

[tables.shelves.rows]
novel = { shelf = "B2" }
atlas = { shelf = "C1" }

[tables.rooms]
version = "7"
rows = { B2 = { floor = 1 }, C1 = { floor = 2 } }

[[rules]]
from = "shelves"
from_column = "shelf"
to = "rooms"
relation = "stands_in"

[[policies]]
kind = "lookup"
type = "NAME_SHELF"
shape = "add-a-field"
table = "shelves"
key = "book"
column = "shelf"
field = "shelf"
message = "a request names the shelf"
when = [{ table = "rooms", key = "room", column = "floor", equals = 1 }]

[[policies]]
kind = "member"
type = "KNOWN_SHELF"
shape = "rewrite-a-value"
table = "shelves"
key = "book"
column = "shelf"
field = "shelf"
registry = "rooms"
message = "no such shelf"

[[policies]]
kind = "multiple"
type = "WHOLE_DAYS"
field = "days"
unit = "1"
message = "whole days"
"""


def changed(old: str, new: str) -> Source:
    assert TEXT.count(old) >= 1, old
    return Source("library.toml", TEXT.replace(old, new, 1))


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_module, "_registered", {})


# Shipped --------------------------------------------------------------------------------------------------------------


def test_acme_has_six_tables_and_five_policies() -> None:
    acme = load_domain("acme")
    assert [table.name for table in acme.tables] == [
        "active_csm_codes",
        "promo_eligibility",
        "token_funding_map",
        "recommended_credit_token",
        "required_promo_policy",
        "funding_type_policy",
    ]
    assert [(policy.type, policy.shape.value, policy.table) for policy in acme.policies] == [
        ("ADD_ACTIVE_PROMO_CODE", "add-a-field", "active_csm_codes"),
        ("USE_RECOGNISED_PROMO_CODE", "rewrite-a-value", "active_csm_codes"),
        ("USE_REQUIRED_FUNDING_TYPE", "conditional-rewrite", "recommended_credit_token"),
        ("USE_REQUIRED_PROMO_TYPE", "rewrite-a-value", "required_promo_policy"),
        ("ROUND_AMOUNT", "rewrite-a-value", None),
    ]
    assert Rule("active_csm_codes", "promo_eligibility", "requires_recognition").triple in {
        rule.triple for rule in acme.rules
    }
    assert all(table.version == "1.0.0" for table in acme.tables)


def test_recipes_has_brands_pairs_and_a_ladder_of_four_rungs() -> None:
    recipes = load_domain("recipes")
    rows = {table.name: list(table.rows) for table in recipes.tables}
    assert set(rows) == {"dietary_ladder", "celiac_safe_brands", "incompatible_pairs"}
    assert [key[:6] for key in rows["dietary_ladder"]] == ["rung_0", "rung_1", "rung_2", "rung_3"]
    request = Request({"diet": "rung_3_celiac_safe", "ingredient": "soy_sauce", "brand": "Any"})
    (suggestion,) = recipes.world().evaluate(request).suggestions
    assert (suggestion.type, dict(suggestion.parameters)) == (
        "USE_CELIAC_SAFE_BRAND",
        {"brand": "Tamari House"},
    )


@pytest.mark.parametrize("name", ["acme", "recipes"])
def test_every_shipped_fix_works(name: str) -> None:
    world = load_domain(name).world()
    for policy in world.policies:
        if isinstance(policy, Lookup):
            for key in world.tables[policy.table].rows:
                fields = {policy.key: key, **{c.key: c_key(world, c) for c in policy.when if c.key != policy.key}}
                response = world.evaluate(Request({policy.field: "wrong", **fields}))
                mine = [each for each in response.suggestions if each.type == policy.type]
                assert len(mine) == 1, (policy.type, key)
                assert world.evaluate(Request(fields).merged(mine[0].parameters)).ok, (policy.type, key)


def c_key(world, condition) -> str:
    """A key for which the condition holds."""
    rows = world.tables[condition.table].rows
    return next(key for key in rows if rows[key][condition.column] == condition.equals)


# A third party's ------------------------------------------------------------------------------------------------------


def test_a_domain_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "library.toml").write_text(TEXT, encoding="utf-8")
    library = load_domain("library.toml", beside=tmp_path)
    assert load_domain(str(tmp_path / "library.toml")).title == library.title == "Loans"
    world = library.world()
    assert world.versions == {"shelves": "1.0.0", "rooms": "7"}
    assert world.graph.edges == (
        ("shelves:novel", "rooms:B2", "stands_in"),
        ("shelves:atlas", "rooms:C1", "stands_in"),
    )
    response = world.evaluate(Request({"book": "novel", "room": "B2", "days": 2.5}))
    assert [(each.type, dict(each.parameters)) for each in response.suggestions] == [
        ("NAME_SHELF", {"shelf": "B2"}),
        ("WHOLE_DAYS", {"days": 2.0}),
    ]
    assert library.family("KNOWN_SHELF").shape is Shape.REWRITE


def test_a_domain_built_in_python_is_known_once_registered() -> None:
    policy = Lookup("L", Shape.ADD, "t", "key", "value", "field", "message")
    own = Domain("own", "", (Table("t", {"k": {"value": 1}}),), (), (policy,))
    with pytest.raises(UnknownNameError, match=r"known: acme, recipes$"):
        load_domain("own")
    register_domain(own)
    assert load_domain("own") is own
    assert domain_names() == ("acme", "recipes", "own")


def test_an_unknown_domain_or_family_names_the_nearest_and_the_place() -> None:
    with pytest.raises(UnknownNameError, match=r"^m\.toml, line 3: unknown domain 'acm': did you mean 'acme'"):
        load_domain("acm", where="m.toml, line 3")
    with pytest.raises(UnknownNameError, match="unknown suggestion type 'ROUND_AMOUNTS': did you mean"):
        load_domain("acme").family("ROUND_AMOUNTS")
    with pytest.raises(InputError, match=r"nowhere\.toml: cannot be read: No such file"):
        load_domain("nowhere.toml", beside=Path("/nonexistent"))


# Faulty files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('to = "rooms"', 'to = "room"', "line 12, rules[0]: unknown table 'room': did you mean 'rooms'?"),
        ('table = "shelves"', 'table = "shelf"', "line 18, policies[0]: unknown table 'shelf'"),
        ('table = "rooms", key', 'table = "floors", key', "line 18, policies[0]: unknown table 'floors'"),
        ('registry = "rooms"', 'registry = "attic"', "line 29, policies[1]: unknown table 'attic'"),
        ('\ncolumn = "shelf"', '\ncolumn = "shell"', "row 'novel' of table 'shelves' lacks the column 'shell'"),
        ('kind = "multiple"', 'kind = "many"', "line 41, policies[2].kind: Invalid value 'many'"),
        ('"WHOLE_DAYS"', '"NAME_SHELF"', "line 40, policies[2]: a type of suggestion belongs to one policy (got "),
        ('unit = "1"', "unit = 1", "line 44, policies[2].unit: Expected str, got int (got 1)"),
        ('field = "days"', 'fields = "days"', "policies[2]"),
        ('shape = "add-a-field"', 'shape = "add"', "line 21, policies[0].shape: Invalid enum value 'add'"),
        ('relation = "stands_in"', "", "line 12, rules[0]: Object missing required field relation"),
        ('name = "library"', "", "library.toml: Object missing required field name"),
    ],
)
def test_a_fault_is_told_in_one_line_with_file_line_and_field(old: str, new: str, message: str) -> None:
    with pytest.raises(InvsimError) as caught:
        parse_domain(changed(old, new))
    text = str(caught.value)
    assert text.startswith("library.toml")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("old", "new", "line", "named"),
    [
        ('version = "7"', "version = 7", 9, ("rooms", "version", "(got 7)")),
        ('version = "7"', 'verson = "7"', 9, ("rooms", "verson", "(got '7')")),
        ('novel = { shelf = "B2" }', "novel = 2", 5, ("shelves", "novel", "(got 2)")),
    ],
)
def test_a_fault_inside_a_named_table_tells_the_name_the_line_and_the_value(
    old: str, new: str, line: int, named: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        parse_domain(changed(old, new))
    text = str(caught.value)
    assert text.startswith(f"library.toml, line {line}, tables")
    assert all(each in text for each in named)


@pytest.mark.parametrize("unit", ["abc", "0", "nan"])
def test_a_unit_that_is_no_positive_number_is_refused_when_the_file_is_read(unit: str) -> None:
    with pytest.raises(InputError, match="unit"):
        parse_domain(changed('unit = "1"', f'unit = "{unit}"'))
