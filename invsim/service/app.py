"""The HTTP application: a domain's business endpoint, what any client may read, and what an operator may do.

=======  ============================  ==================================================================
any      POST /requests                a business request: 200 when it passes, 422 when it breaks a policy
any      GET /contract                 domain, wire level, state; versions as far as responses carry them
any      GET /contract/reloads/{name}  the last reload of a table: what a row-granular client fetches
any      GET /contract/rules           the rule changes so far
any      GET /health, /openapi.json
token    POST /admin/reload-table      table, rows and optionally a version; answers the reload report
token    GET /admin/graph              the derivation graph
token    GET /admin/world              every row and rule
token    POST, DELETE /admin/rules     declare a rule; withdraw the one that the query names
token    POST /admin/reset             back to the world at the start, in a new epoch
=======  ============================  ==================================================================

A business answer is the very bytes of ``Response.to_bytes``; its ``Contract-State`` header, EPOCH/NUMBER, names the
state it was computed from. The epoch is another after a reset or a new start. The last diffs and the rule log are open
to any client, for clients that are not operators are whom the contract addresses; rows, rules and the graph are the
operator's. They are served at every wire level, which is about what business answers carry.

Whatever is refused for another reason than a policy is answered with problem details (RFC 9457): 400 for a body or a
query that is not as described, 401, 404 also for a table or a rule that there is none of, 405, 408, 409 for what the
world as it stands does not allow, 413, 415.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from invsim.errors import InputError, UnknownNameError
from invsim.service.messages import FIELDS, RELOAD, RULE, STATE
from invsim.service.openapi import describe
from invsim.service.problems import HANDLERS, CloseUnread, Guard, Problem, read
from invsim.service.state import Service
from invsim.world import wire

BUSINESS_BYTES = 64 * 1024
"""Largest business request, and largest rule."""

ADMIN_BYTES = 4 * 1024 * 1024
"""Largest reload."""

RULE_NAMES = ("from", "to", "relation")

T = TypeVar("T")


def build_app(service: Service, *, token: str) -> Starlette:
    """Return the ASGI application of a service.

    Parameters
    ----------
    service : Service
    token : str
        What an operator must carry.
    """
    pages = _Pages(service)
    admin = [
        Route("/reload-table", pages.reload_table, methods=["POST"]),
        Route("/graph", pages.graph),
        Route("/world", pages.world),
        Route("/rules", pages.change_rules, methods=["POST", "DELETE"]),
        Route("/reset", pages.reset, methods=["POST"]),
    ]
    app = Starlette(
        routes=[
            Route("/requests", pages.answer, methods=["POST"]),
            Route("/contract", pages.contract),
            Route("/contract/reloads/{table:path}", pages.last_reload),
            Route("/contract/rules", pages.rules),
            Route("/health", pages.health),
            Route("/openapi.json", pages.openapi),
            Mount("/admin", routes=admin, middleware=[Middleware(Guard, token=token)]),
        ],
        middleware=[Middleware(CloseUnread)],
        exception_handlers=HANDLERS,
    )
    app.router.redirect_slashes = False
    return app


class _Pages:
    """The endpoints. Each takes the service's state once and answers from it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.description = msgspec.json.encode(describe(service.domain, service.start))

    # For any client -------------------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Response:
        fields = await read(request, FIELDS, limit=BUSINESS_BYTES)
        state = self.service.state
        answer = state.world.evaluate(wire.Request(fields))
        status = HTTPStatus.OK if answer.ok else HTTPStatus.UNPROCESSABLE_ENTITY
        return Response(answer.to_bytes(), status, {STATE: state.name}, "application/json")

    async def contract(self, request: Request) -> Response:
        return _json(self.service.state.summary(self.service.domain))

    async def last_reload(self, request: Request) -> Response:
        name, state = request.path_params["table"], self.service.state
        if name not in state.world.tables:
            raise Problem(HTTPStatus.NOT_FOUND, str(UnknownNameError("table", name, state.world.tables)))
        report = state.reloads.get(name)
        return _json({"last_reload": None if report is None else report.to_dict()})

    async def rules(self, request: Request) -> Response:
        return _json({"log": [change.to_dict() for change in self.service.state.rule_log]})

    async def health(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def openapi(self, request: Request) -> Response:
        return Response(self.description, media_type="application/json")

    # For operators --------------------------------------------------------------------------------------------------

    async def reload_table(self, request: Request) -> Response:
        asked = await read(request, RELOAD, limit=ADMIN_BYTES)
        report = await _worked(lambda: self.service.reload_table(asked.table, asked.rows, asked.version))
        return _json(report.to_dict())

    async def graph(self, request: Request) -> Response:
        state = self.service.state
        graph = await _worked(lambda: state.world.graph)
        return _json(graph.to_dict())

    async def world(self, request: Request) -> Response:
        state = self.service.state
        return _json(await _worked(lambda: state.everything(self.service.domain)))

    async def change_rules(self, request: Request) -> Response:
        if request.method == "DELETE":
            triple = _triple(request)
            change = await _worked(lambda: self.service.withdraw_rule(triple))
        else:
            rule = (await read(request, RULE, limit=BUSINESS_BYTES)).build()
            change = await _worked(lambda: self.service.declare_rule(rule))
        return _json(change.to_dict())

    async def reset(self, request: Request) -> Response:
        state = await _worked(self.service.reset)
        return _json(state.everything(self.service.domain))


def _json(data: object) -> Response:
    return Response(msgspec.json.encode(data), media_type="application/json")


async def _worked(work: Callable[[], T]) -> T:
    """Do what may take a while beside the event loop; what the world refuses becomes a problem."""
    try:
        return await run_in_threadpool(work)
    except UnknownNameError as error:
        raise Problem(HTTPStatus.NOT_FOUND, str(error)) from None
    except InputError as error:
        raise Problem(HTTPStatus.CONFLICT, str(error)) from None


def _triple(request: Request) -> tuple[str, str, str]:
    given = request.query_params.multi_items()
    if sorted(name for name, _ in given) != sorted(RULE_NAMES):
        raise Problem(HTTPStatus.BAD_REQUEST, f"the query names a rule by {', '.join(RULE_NAMES)}, each once")
    named = dict(given)
    return named["from"], named["to"], named["relation"]
