"""Derivation rules: the fingerprint, the tables a fix depends on, and the graph over the rows."""

import hashlib
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.world import Graph, Rule, Table, fingerprint, load_domain
from invsim.world.rules import Node, node_id, partners, span

AB = Rule("a", "b", "feeds")
BC = Rule("b", "c", "feeds")
names = st.sampled_from("abcd")
some_rules = st.builds(Rule, names, names, st.sampled_from(["feeds", "bars"]))
rule_sets = st.lists(some_rules, unique_by=lambda rule: rule.triple, max_size=6)


# The fingerprint ----------------------------------------------------------------------------------------------------


def test_the_fingerprint_is_12_hex_of_sha256_over_the_compact_json_of_the_sorted_triples() -> None:
    text = json.dumps([["a", "b", "feeds"], ["b", "c", "feeds"]], separators=(",", ":"))
    assert fingerprint([BC, AB]) == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_the_fingerprint_of_acme_is_pinned() -> None:
    assert load_domain("acme").world().rules_version == "52002654160f"


@given(rule_sets, st.randoms(use_true_random=False))
def test_the_fingerprint_does_not_depend_on_the_order(rules: list, random) -> None:
    shuffled = random.sample(rules, len(rules))
    assert fingerprint(shuffled) == fingerprint(rules)
    assert len(fingerprint(rules)) == 12
    assert set(fingerprint(rules)) <= set("0123456789abcdef")


@given(rule_sets, some_rules)
def test_adding_or_removing_a_rule_changes_the_fingerprint(rules: list, extra: Rule) -> None:
    without = [rule for rule in rules if rule.triple != extra.triple]
    assert fingerprint([*without, extra]) != fingerprint(without)


def test_declaring_a_rule_again_with_another_relation_changes_the_fingerprint() -> None:
    assert fingerprint([AB, BC]) != fingerprint([Rule("a", "b", "bars"), BC])


def test_a_rule_has_a_direction() -> None:
    assert fingerprint([AB]) != fingerprint([Rule("b", "a", "feeds")])


def test_columns_shape_the_graph_and_not_the_fingerprint() -> None:
    assert fingerprint([Rule("a", "b", "feeds", "x", "y")]) == fingerprint([AB])


def test_table_data_never_changes_the_fingerprint() -> None:
    world = load_domain("acme").world()
    for name in world.tables:
        reloaded, _ = world.reloaded(name, {})
        assert reloaded.rules_version == world.rules_version


# What a fix depends on ------------------------------------------------------------------------------------------------


def test_a_fix_depends_on_its_table_and_on_those_it_shares_a_derivation_with() -> None:
    assert partners([AB, BC], "b") == ("a", "b", "c")
    assert partners([AB, BC], "a") == ("a", "b")
    assert partners([AB, BC], "unrelated") == ("unrelated",)


def test_a_table_is_named_once_however_many_rules_tie_it() -> None:
    rules = [AB, Rule("a", "b", "bars"), Rule("b", "a", "returns"), Rule("b", "b", "self")]
    assert partners(rules, "b") == ("a", "b")


def test_the_vectors_of_acme() -> None:
    world = load_domain("acme").world()
    assert world.vector("active_csm_codes") == ("active_csm_codes", "promo_eligibility")
    assert world.vector("recommended_credit_token") == ("token_funding_map", "recommended_credit_token")
    assert world.vector("required_promo_policy") == ("required_promo_policy", "promo_eligibility")


# The graph ------------------------------------------------------------------------------------------------------------


def tables(**content: dict) -> dict[str, Table]:
    return {name: Table(name, rows) for name, rows in content.items()}


def test_acme_spans_23_nodes_and_20_edges() -> None:
    graph = load_domain("acme").world().graph
    assert len(graph.nodes) == 23
    assert len(graph.edges) == len(set(graph.edges)) == 20
    assert all(start in graph.nodes and end in graph.nodes for start, end, _ in graph.edges)


def test_every_row_is_a_node_that_carries_its_tables_version() -> None:
    graph = span({"a": Table("a", {"k": {}}, "7")}, [])
    assert graph.nodes == {"a:k": Node("a", "k", "7")}
    assert graph.edges == ()


def test_without_columns_a_rule_joins_rows_of_equal_key() -> None:
    graph = span(tables(a={"k": {}, "l": {}}, b={"k": {}, "m": {}}), [AB])
    assert graph.edges == (("a:k", "b:k", "feeds"),)


def test_a_column_corresponds_to_a_key_or_to_a_column() -> None:
    world = tables(a={"k": {"x": "one"}}, b={"one": {"y": "two"}, "two": {"y": "one"}})
    assert span(world, [Rule("a", "b", "feeds", "x")]).edges == (("a:k", "b:one", "feeds"),)
    assert span(world, [Rule("a", "b", "feeds", "x", "y")]).edges == (("a:k", "b:two", "feeds"),)


def test_a_list_corresponds_item_by_item_and_an_absent_column_to_nothing() -> None:
    world = tables(a={"k": {"x": ["one", "two", "three"]}, "l": {}}, b={"one": {}, "two": {}})
    edges = span(world, [Rule("a", "b", "feeds", "x")]).edges
    assert edges == (("a:k", "b:one", "feeds"), ("a:k", "b:two", "feeds"))


def test_the_graph_endpoint_sends_nodes_by_identity_and_edges_by_end() -> None:
    graph = span(tables(a={"k": {}}, b={"k": {}}), [AB])
    assert graph.to_dict() == {
        "nodes": {
            "a:k": {"table": "a", "key": "k", "version": "1.0.0"},
            "b:k": {"table": "b", "key": "k", "version": "1.0.0"},
        },
        "edges": [{"from": "a:k", "to": "b:k", "relation": "feeds"}],
    }


def test_a_nodes_identity_is_its_table_and_key_never_a_value() -> None:
    assert node_id("funding_type_policy", "enterprise_annual") == "funding_type_policy:enterprise_annual"


# Walking downstream ---------------------------------------------------------------------------------------------------


def graph_of(edges: Iterable[tuple[str, str]]) -> Graph:
    return Graph({}, tuple((start, end, "feeds") for start, end in edges))


def test_downstream_is_breadth_first_and_runs_forward_only() -> None:
    graph = graph_of([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e"), ("z", "a")])
    assert graph.downstream(["a"]) == ("b", "c", "d", "e")
    assert graph.downstream(["e"]) == ()
    assert graph.downstream([]) == ()


@pytest.mark.parametrize("start", ["a", "b", "c"])
def test_a_cycle_ends_and_leaves_the_start_out(start: str) -> None:
    graph = graph_of([("a", "b"), ("b", "c"), ("c", "a")])
    assert sorted(graph.downstream([start])) == sorted({"a", "b", "c"} - {start})


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), max_size=12),
    st.sets(st.sampled_from("abcdef"), max_size=3),
)
def test_downstream_is_the_transitive_closure_without_its_starts(edges: list, starts: set) -> None:
    reached = set(starts)
    for _ in "abcdef":
        reached |= {end for start, end in edges if start in reached}
    walked = graph_of(edges).downstream(sorted(starts))
    assert set(walked) == reached - starts
    assert len(walked) == len(set(walked))
