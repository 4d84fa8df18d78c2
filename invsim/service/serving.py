"""Running the application on a socket, in the foreground or beside whatever else is going on."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from invsim.errors import InputError, InvsimError, one_line

BACKLOG = 2048
GRACE_SECONDS = 5
IDLE_SECONDS = 75  # longer than clients keep a connection idle, so that they are the ones to close it
START_SECONDS = 10.0


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, to itself only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises
    ------
    InputError
        Where the address cannot be had, say because something listens there already.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio switches Nagle's delay off only where it is.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except (OSError, OverflowError, UnicodeError) as error:
        listener.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = "something listens there already; --port 0 takes a free port" if taken else str(error)
        raise InputError(f"cannot listen: {reason}", where=f"{host}:{port}") from None


def url_of(listener: socket.socket) -> str:
    """Return the URL that a socket answers at."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then finish what is under way and return."""
    # uvicorn raises the signal once more when it has stopped; by then it has been heeded.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with listener:
            _server(app).run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def running(app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve in a thread for as long as the block lasts, and yield the URL."""
    server = _server(app)
    with listen(host, port) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield url_of(listener)  # the socket listens already: who calls early waits in its queue
        finally:
            server.should_exit = True
            thread.join(START_SECONDS + GRACE_SECONDS)
    if thread.is_alive():
        raise InvsimError("the server did not stop")


def _server(app: ASGIApp) -> uvicorn.Server:
    logger = logging.getLogger("uvicorn.error")
    if not logger.handlers:
        logger.addHandler(_OneLine())
        logger.propagate = False
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return uvicorn.Server(config)


class _OneLine(logging.Handler):
    """Reports on stderr what goes wrong in the server, a line each; all of it when INVSIM_DEBUG is set."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage().splitlines()[0] if error is None else f"{type(error).__name__}: {error}"
        if os.environ.get("INVSIM_DEBUG") and record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            sys.stderr.write(f"{text}\n")
            return
        sys.stderr.write(f"invsim: server: {one_line(text)}\n")
