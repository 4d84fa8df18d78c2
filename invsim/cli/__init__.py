"""The command line: parse, call, print. One module a command; everything heavy is imported where it is needed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

from invsim import __version__
from invsim.cli import calibrate, explain, fit, listings, live, paper, preflight, replay, run, serve, sweep, trace
from invsim.errors import InvsimError, one_line

USAGE_ERROR = 2
INTERNAL_ERROR = 70
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="invsim")
def cli() -> None:
    """Simulate invalidation contracts: what cached API fixes save when the server's data drifts.

    \b
    Example:
      invsim run payments --model claude-haiku-4-5
    """


for command in (
    run.run,
    sweep.sweep,
    explain.explain,
    explain.sensitivity,
    replay.replay,
    calibrate.calibrate,
    paper.paper,
    serve.serve,
    fit.fit,
    trace.trace,
    live.live,
    preflight.preflight,
    listings.scenario,
    listings.model,
    listings.arm,
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 with one line on stderr for a caller's mistake."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign still gets its line
    try:
        code = cli.main(args=None if arguments is None else list(arguments), prog_name="invsim", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE_ERROR
    except click.ClickException as error:
        return _fail(error.format_message(), USAGE_ERROR)
    except InvsimError as error:
        return _fail(str(error), USAGE_ERROR)
    except SystemExit as error:  # click's own way out when the reader of a pipe has gone
        return error.code if isinstance(error.code, int) else INTERNAL_ERROR
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}", USAGE_ERROR)
    except Exception as error:
        if os.environ.get("INVSIM_DEBUG"):
            raise
        return _fail(
            f"internal error: {type(error).__name__}: {error} (set INVSIM_DEBUG=1 to see where; please report it)",
            INTERNAL_ERROR,
        )
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    click.echo(f"invsim: {one_line(' '.join(message.split()))}", err=True)
    return code
