"""``invsim serve``, and how ``invsim run --server`` reaches what it serves."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from invsim.cli.inputs import needs_extra
from invsim.cli.output import print_json
from invsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from invsim.sim.engine import Connect
    from invsim.world.domain import Domain
    from invsim.world.wire import Level

TOKEN = "INVSIM_ADMIN_TOKEN"
PORT = 8722


@click.command()
@click.argument("what", metavar="DOMAIN|SCENARIO|FILE")
@click.option("--level", metavar="LEVEL", help="Wire level: L0, L1, L4, L5 or L6.  [default: the scenario's, or L6]")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"0 takes a free one.  [default: {PORT}; 0 with --check]")
@click.option("--allow-remote", is_flag=True, help="Let --host be an address that other machines can reach.")
@click.option(
    "--admin-token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Holds the operator's token.  [default: the variable {TOKEN}, or a new token, printed once]",
)
@click.option("--print-openapi", is_flag=True, help="Print the OpenAPI description and exit.")
@click.option("--check", is_flag=True, help="Start, answer one request over HTTP, stop, and say so.")
def serve(
    what: str,
    level: str | None,
    host: str,
    port: int | None,
    allow_remote: bool,
    admin_token_file: Path | None,
    print_openapi: bool,
    check: bool,
) -> None:
    """Serve a domain over HTTP, for clients to call and for simulations to run against.

    What to serve is a domain by name, a scenario by name (its domain at its wire level), or the TOML file of either.
    Business requests go to POST /requests; GET /openapi.json describes all paths. Those under /admin need the
    operator's token ("Authorization: Bearer TOKEN"). SIGINT and SIGTERM end it once what is under way is answered.

    \b
    Examples:
      invsim serve acme --check
      invsim serve recipes --level L4 --print-openapi
      invsim serve payments --port 0 --check
    \b
    To simulate against it, in two terminals that share a token:
      $ export INVSIM_ADMIN_TOKEN=...
      $ invsim serve acme
      $ invsim run payments --server http://127.0.0.1:8722 --replications 10
    """
    domain, at = find(what, level)
    with needs_extra("serve"):
        from invsim.service.app import build_app
        from invsim.service.openapi import describe
        from invsim.service.serving import is_loopback, listen, running, url_of
        from invsim.service.serving import serve as serve_on
        from invsim.service.state import Service
    if print_openapi:
        print_json(describe(domain, domain.world(level=at)))
        return
    if not is_loopback(host) and not allow_remote:
        raise InputError("other machines can reach that address; --allow-remote lets them", where="--host", value=host)
    token, new = _own_token(admin_token_file)
    app = build_app(Service(domain, level=at), token=token)
    if check:
        with running(app, host=host, port=port or 0) as url:
            _probe(url, token, domain, at)
            click.echo(f"{domain.name} at level {at.name} answers at {url}")
        return
    listener = listen(host, PORT if port is None else port)
    if not is_loopback(host):
        click.echo(f"warning: {host} can be reached from other machines, and nothing is encrypted", err=True)
    if new:
        click.echo(f"operator token: {token}", err=True)
    click.echo(f"{domain.name} at level {at.name}: {url_of(listener)}")
    serve_on(app, listener)
    click.echo("stopped", err=True)


def find(what: str, level: str | None) -> tuple[Domain, Level]:
    """Return the domain that a name or a file stands for, and the wire level to serve it at."""
    from invsim.located import Source, parse
    from invsim.sim import scenario as scenarios
    from invsim.world.domain import domain_names, load_domain, parse_domain
    from invsim.world.wire import Level

    asked = None if level is None else Level.parse(level, where="--level")
    if what in domain_names():
        return load_domain(what), asked or Level.L6
    if what in scenarios.SHIPPED:
        found = scenarios.load_scenario(what)
    elif what.endswith(".toml"):
        source = Source.read(Path(what))
        if "stream" not in parse(source):
            return parse_domain(source), asked or Level.L6
        found = scenarios.parse_scenario(source, beside=Path(what).parent)
    else:
        known = (*dict.fromkeys([*domain_names(), *scenarios.SHIPPED]), "a .toml file")
        raise UnknownNameError("domain or scenario", what, known)
    where = found.source.where
    written = Level.parse(found.manifest.wire, where=where("wire"))
    domain = load_domain(found.manifest.domain, beside=found.beside, where=where("domain"))
    return domain, written if asked is None else asked


def _own_token(file: Path | None) -> tuple[str, bool]:
    """Return the operator's token, and whether it is a new one that nobody knows yet."""
    if file is not None:
        from invsim.located import Source

        return _usable(Source.read(file).text.strip(), str(file)), False
    if TOKEN in os.environ:
        return _usable(os.environ[TOKEN], TOKEN), False
    return secrets.token_urlsafe(24), True


def _usable(token: str, where: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError("the operator's token is one word of printable ASCII", where=where)
    return token


def _probe(url: str, token: str, domain: Domain, level: Level) -> None:
    """Have a client connect, which compares rows, versions, rules and level, and send a request."""
    from invsim.service.remote import Remote
    from invsim.world.wire import Request

    with Remote(url, token=token, domain=domain) as remote:
        remote.connect(domain.world(level=level)).handle(Request({}))


@contextmanager
def connection(domain: Domain, url: str | None, token_variable: str) -> Iterator[Connect]:
    """Yield what opens the server of each stream: one in this process, or the service at ``url``."""
    if url is None:
        from invsim.world.server import Server

        yield Server
        return
    with needs_extra("serve"):
        from invsim.service.remote import Remote
        from invsim.service.serving import is_loopback
    if token_variable not in os.environ:
        raise InputError(f"the operator's token of {url} is not set in the environment", where=token_variable)
    with Remote(url, token=_usable(os.environ[token_variable], token_variable), domain=domain) as remote:
        if not (remote.encrypted or is_loopback(remote.host)):
            click.echo(f"warning: the operator's token goes to {remote.host} unencrypted", err=True)
        yield remote.connect
