"""The API under simulation: versioned tables, rules and graph, policies, responses per level. Knows no client."""

from invsim.world.domain import Domain, load_domain
from invsim.world.rules import Graph, Rule, fingerprint
from invsim.world.server import ReloadReport, Server, World
from invsim.world.tables import Diff, Table
from invsim.world.wire import Level, Request, Response, Shape, Suggestion, account

__all__ = [
    "Diff",
    "Domain",
    "Graph",
    "Level",
    "ReloadReport",
    "Request",
    "Response",
    "Rule",
    "Server",
    "Shape",
    "Suggestion",
    "Table",
    "World",
    "account",
    "fingerprint",
    "load_domain",
]
