"""The service described in OpenAPI 3.1, from the domain's own tables, rules and policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeAlias

from invsim.service.messages import LONGEST_NAME, STATE
from invsim.world.domain import Domain
from invsim.world.policies import Policy
from invsim.world.server import World
from invsim.world.wire import CacheHint, Level

Schema: TypeAlias = dict[str, Any]

VERSION = "1.0.0"
"""Of the paths and messages described here."""

TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
VALUE: Schema = {"type": ["string", "number", "boolean"]}
FINGERPRINT: Schema = {"type": "string", "pattern": "^[0-9a-f]{12}$"}
ROW: Schema = {"type": "object", "additionalProperties": {"anyOf": [VALUE, {"type": "array", "items": VALUE}]}}

BODY_PROBLEMS = (400, 408, 413, 415)


def describe(domain: Domain, world: World) -> Schema:
    """Return the OpenAPI document of a domain served at the wire level of ``world``.

    Responses are described as they are sent at that level: fields that it lacks are not in it.
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": domain.title or domain.name, "version": VERSION, "description": _about(world)},
        "paths": {**_public(world), **_admin(world)},
        "components": {
            "schemas": _schemas(domain, world),
            "responses": {f"Problem{status}": _problem(status) for status in (*BODY_PROBLEMS, 401, 404, 409)},
            "securitySchemes": {"operator": {"type": "http", "scheme": "bearer"}},
        },
    }


def _about(world: World) -> str:
    return f"A domain served under an invalidation contract at wire level {world.level.name}."


# Paths --------------------------------------------------------------------------------------------------------------


def _public(world: World) -> Schema:
    table = {"name": "table", "in": "path", "required": True, "schema": {"enum": list(world.tables)}}
    state = {STATE: {"description": "EPOCH/NUMBER of the state answered from.", "schema": TEXT, "required": True}}
    answers = {
        "200": {**_json("The request passes every policy.", "Success"), "headers": state},
        "422": {**_json("The request breaks a policy; the suggestions say what would mend it.", "Failure")}
        | {"headers": state},
    }
    return {
        "/requests": {"post": _operation("Send a business request", answers, BODY_PROBLEMS, body="Request")},
        "/contract": {"get": _operation("What is served, and the versions", _ok("Contract"))},
        "/contract/reloads/{table}": {
            "get": _operation("The last reload of a table", _ok("LastReload"), (404,), parameters=[table])
        },
        "/contract/rules": {"get": _operation("The rule changes so far", _ok("RuleLog"))},
        "/health": {"get": _operation("Whether it answers", _ok("Health"))},
        "/openapi.json": {"get": _operation("This description", _ok("Description"))},
    }


def _admin(world: World) -> Schema:
    triple = [
        {"name": name, "in": "query", "required": True, "schema": schema}
        for name, schema in (
            ("from", {"enum": list(world.tables)}),
            ("to", {"enum": list(world.tables)}),
            ("relation", TEXT),
        )
    ]

    def operation(summary: str, schema: str, problems: Sequence[int] = (), **more: Any) -> Schema:
        return _operation(summary, _ok(schema), (401, *problems), **more) | {"security": [{"operator": []}]}

    changes = (404, 409)
    return {
        "/admin/reload-table": {
            "post": operation("Load new rows into a table", "Report", (*BODY_PROBLEMS, *changes), body="Reload")
        },
        "/admin/graph": {"get": operation("The derivation graph", "Graph")},
        "/admin/world": {"get": operation("Every row and rule", "World")},
        "/admin/rules": {
            "post": operation("Declare a rule", "RuleChange", (*BODY_PROBLEMS, *changes), body="Rule"),
            "delete": operation("Withdraw a rule", "RuleChange", (400, *changes), parameters=triple),
        },
        "/admin/reset": {"post": operation("Back to the world at the start, in a new epoch", "World")},
    }


def _operation(
    summary: str,
    answers: Schema,
    problems: Sequence[int] = (),
    *,
    body: str | None = None,
    parameters: Sequence[Schema] = (),
) -> Schema:
    refusals = {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in problems}
    content = {"application/json": {"schema": _ref(body)}} if body is not None else None
    return {
        "summary": summary,
        **({"parameters": list(parameters)} if parameters else {}),
        **({"requestBody": {"required": True, "content": content}} if content is not None else {}),
        "responses": {**answers, **refusals},
    }


def _ok(schema: str) -> Schema:
    return {"200": _json("Done.", schema)}


def _json(description: str, schema: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": _ref(schema)}}}


def _problem(status: int) -> Schema:
    content = {"application/problem+json": {"schema": _ref("Problem")}}
    return {"description": HTTPStatus(status).phrase, "content": content}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


# Schemas ------------------------------------------------------------------------------------------------------------


def _schemas(domain: Domain, world: World) -> Schema:
    names = _list(TEXT)
    tables: Schema = {"enum": list(world.tables)}
    columns = {"from_column": {"type": ["string", "null"]}, "to_column": {"type": ["string", "null"]}}
    rule = {"from": tables, "to": tables, "relation": TEXT}
    change = {"rule": _ref("Rule"), "added": {"type": "boolean"}, "rules_version": FINGERPRINT}
    report = {
        "table": tables,
        "old_version": TEXT,
        "new_version": TEXT,
        "diff": _object({"added": names, "removed": names, "changed": names}),
        "affected_downstream": names,
    }
    node = _object({"table": tables, "key": TEXT, "version": TEXT})
    edge = _object({"from": TEXT, "to": TEXT, "relation": TEXT})
    rows = {"type": "object", "additionalProperties": ROW}
    table = _object({"version": TEXT, "rows": rows})
    served = {"domain": {"const": domain.name}, "level": {"const": world.level.name}, "state": TEXT}
    whole = {**served, "tables": _object(dict.fromkeys(world.tables, table)), "rules": _list(_ref("Rule"))}
    return {
        "Request": _request(world),
        **_answers(world),
        "Contract": _object({**served, "title": TEXT, **_stamps(world)}),
        "Reload": _object({"table": tables, "rows": rows}, {"version": {**NAME, "type": ["string", "null"]}}),
        "Report": _object(report),
        "LastReload": _object({"last_reload": {"anyOf": [_ref("Report"), {"type": "null"}]}}),
        "Rule": _object(rule, columns),
        "RuleChange": _object(change),
        "RuleLog": _object({"log": _list(_ref("RuleChange"))}),
        "Graph": _object({"nodes": {"type": "object", "additionalProperties": node}, "edges": _list(edge)}),
        "World": _object(whole),
        "Health": _object({"status": {"const": "ok"}}),
        "Description": {"type": "object", "required": ["openapi", "info", "paths"]},
        "Problem": _object({"type": TEXT, "title": TEXT, "status": {"type": "integer"}, "detail": TEXT}),
    }


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the schema of an object that has some fields, may have others, and none beside them."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _request(world: World) -> Schema:
    """Return the fields that the policies read; a request may carry any other."""
    properties: Schema = {}
    for policy in world.policies:
        for field, table in _read_by(policy):
            known = [] if table is None else list(world.tables[table].rows)[:3]
            properties.setdefault(field, {**VALUE, **({"examples": known} if known else {})})
    return {"type": "object", "properties": properties, "additionalProperties": VALUE}


def _read_by(policy: Policy) -> list[tuple[str, str | None]]:
    """Return the request's fields that a policy is known to read, with the table whose key each names."""
    found: list[tuple[str, str | None]] = []
    if (key := getattr(policy, "key", None)) is not None:
        found.append((key, policy.table))
    found += [(condition.key, condition.table) for condition in getattr(policy, "when", ())]
    if (field := getattr(policy, "field", None)) is not None:
        found.append((field, getattr(policy, "registry", None)))
    return found


def _answers(world: World) -> Schema:
    success = {"success": {"const": True}, **_stamps(world)}
    failure = {"success": {"const": False}, "error": TEXT, **_stamps(world)}
    if world.level < Level.L1:
        return {"Success": _object(success), "Failure": _object(failure)}
    suggestions = {"type": "array", "minItems": 1, "items": {"anyOf": [_suggestion(p, world) for p in world.policies]}}
    feedback = {"recovery_feedback": _object({"suggestions": suggestions})}
    return {"Success": _object(success), "Failure": _object(failure, feedback)}


def _stamps(world: World) -> Schema:
    versions = {"table_versions": _object(dict.fromkeys(world.tables, TEXT))} if world.level >= Level.L1 else {}
    return {**versions, **({"rules_version": FINGERPRINT} if world.level >= Level.L6 else {})}


def _suggestion(policy: Policy, world: World) -> Schema:
    field = getattr(policy, "field", None)
    parameters: Schema = {"type": "object", "additionalProperties": VALUE} if field is None else _object({field: VALUE})
    hint = CacheHint.RECOMPUTE if policy.table is None else CacheHint.CACHEABLE
    schema: Schema = {"type": {"const": policy.type}, "parameters": parameters, "cache_hint": {"const": str(hint)}}
    if policy.table is not None:
        schema["table"] = {"const": policy.table}
        if world.level >= Level.L4:
            stamp = _object({"table": {"enum": list(world.tables)}, "version": TEXT})
            schema["tables"] = _list(stamp)
    return _object(schema)
