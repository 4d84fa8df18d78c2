"""Refusals as problem details (RFC 9457), and the border that every body crosses."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from invsim.errors import InputError, one_line
from invsim.service.messages import Reader, T

MEDIA_TYPE = "application/problem+json"

LONGEST_DETAIL = 500
"""Characters of a refusal; it may echo what was sent."""

BODY_SECONDS = 20.0
"""How long a body may take to arrive."""


class Problem(HTTPException):
    """A refusal: a status, one line of what was wrong and what would be right."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, one_line(detail[:LONGEST_DETAIL])[:LONGEST_DETAIL], headers)


async def refuse(request: Request, error: Exception) -> Response:
    """Answer with problem details."""
    if not isinstance(error, HTTPException):  # the server reports it; whoever called is told no more than that
        error = Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the server made a mistake")
    title = HTTPStatus(error.status_code).phrase
    body = {"type": "about:blank", "title": title, "status": error.status_code, "detail": error.detail}
    return Response(msgspec.json.encode(body), error.status_code, error.headers, MEDIA_TYPE)


async def drop(request: Request, error: Exception) -> Response:
    """Answer nobody: the client has gone."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


HANDLERS: Mapping[Any, ExceptionHandler] = {HTTPException: refuse, ClientDisconnect: drop, Exception: refuse}


async def read(request: Request, reader: Reader[T], *, limit: int) -> T:
    """Read a JSON body of at most ``limit`` bytes.

    Raises
    ------
    Problem
        415 for another content type, 413 for too many bytes, 408 for too slow ones, 400 for what is not the JSON that
        is expected. A body too large is refused as soon as that is known, and the rest of it is not read.
    """
    _check_type(request)
    body = await _body(request, limit)
    try:
        return reader.read(body)
    except InputError as error:
        raise Problem(HTTPStatus.BAD_REQUEST, str(error)) from None


def _check_type(request: Request) -> None:
    media, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if media.strip().lower() != "application/json" or charset not in {"", "charset=utf-8"}:
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json, in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must not be compressed")


async def _body(request: Request, limit: int) -> bytes:
    too_large = Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body must be at most {limit:,} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:LONGEST_DETAIL]) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS), aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                if len(body) + len(chunk) > limit:
                    raise too_large
                body += chunk
    except TimeoutError:
        raise Problem(HTTPStatus.REQUEST_TIMEOUT, f"the body took more than {BODY_SECONDS:g} s") from None
    return bytes(body)


class CloseUnread:
    """Closes the connection after an answer to a request whose body was not read to its end.

    Otherwise the server would go on reading, and throwing away, all that a refused client has left to send.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request (ASGI)."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"

        async def watched_receive() -> Message:
            nonlocal unread
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                unread = False
            return message

        async def watched_send(message: Message) -> None:
            if message["type"] == "http.response.start" and unread:
                message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await send(message)

        await self.app(scope, watched_receive, watched_send)


class Guard:
    """Lets through who carries the operator's token: ``Authorization: Bearer TOKEN``."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app = app
        self._expected = _digest(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request (ASGI)."""
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        known = hmac.compare_digest(_digest(given.strip()), self._expected)
        if scheme.lower() != "bearer" or not known:
            challenge = {"WWW-Authenticate": 'Bearer realm="admin"'}
            raise Problem(HTTPStatus.UNAUTHORIZED, "this path needs the operator's token", challenge)
        await self.app(scope, receive, send)


def _digest(token: str) -> bytes:
    """Return a digest of one length: comparing it takes as long whatever was given."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
