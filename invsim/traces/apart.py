"""Work in a process apart: a library that ends its process over a damaged file ends that one, and not the caller's.

The worker is started when it is first needed, serves one call at a time, and is started anew after it has died. It is
this interpreter with the same path, and runs nothing of the caller's main module.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from typing import IO, Any, NoReturn

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from invsim.traces.apart import serve; serve()"


class Died(Exception):
    """The worker ended in the middle of a call."""


class Worker:
    """A process that calls functions of modules for this one; what goes in and comes out is pickled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def call(self, function: Callable[..., Any], *args: Any, told: Callable[[Any], None] | None = None) -> Any:
        """Return what a function returns there, or raise what it raises.

        Parameters
        ----------
        function : callable
            A function at the top of a module.
        *args
        told : callable, optional
            Called here with each value that the function hands to its keyword argument ``tell``.

        Raises
        ------
        Died
            Where the worker ended before it answered.
        OSError
            Where it cannot be started.
        """
        with self._lock:
            process = self._started()
            try:
                return _answer(process, (function, args, told is not None), told)
            except _Raised as raised:
                raise raised.error from None
            except BaseException:  # an interrupted call would be answered in place of the next one
                self._end()
                raise

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return self._process
        self._end()
        command = [sys.executable, "-I", "-c", _START, json.dumps(sys.path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=-1
        )
        self._process, self._owner = process, os.getpid()
        if _pipe(process.stdout).read(1) != _READY:
            self._end()
            raise OSError("the process that decodes Parquet does not start")
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():  # after a fork it is the parent's
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what was still to be written
                _pipe(pipe).close()
        process.wait()


WORKER = Worker()
atexit.register(WORKER.close)

_READY = b"R"
_TOLD, _DONE, _RAISED = "told", "done", "raised"


class _Raised(Exception):
    def __init__(self, error: BaseException) -> None:
        self.error = error


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _answer(process: subprocess.Popen[bytes], request: Any, told: Callable[[Any], None] | None) -> Any:
    try:
        pickle.dump(request, _pipe(process.stdin))
        _pipe(process.stdin).flush()
        while True:
            kind, value = pickle.load(_pipe(process.stdout))
            if kind == _DONE:
                return value
            if kind == _RAISED:
                raise _Raised(value)
            if told is not None:
                told(value)
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        raise Died from None


# In the worker ------------------------------------------------------------------------------------------------------


def serve() -> NoReturn:
    """Answer calls from the standard input until it ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    _be_the_first_to_go()
    answers.write(_READY)
    answers.flush()

    def send(kind: str, value: Any) -> None:
        answers.write(pickle.dumps((kind, value)))
        answers.flush()

    while True:
        try:
            function, args, telling = pickle.load(requests)
        except EOFError:
            sys.exit()
        try:
            send(_DONE, function(*args, tell=lambda value: send(_TOLD, value)) if telling else function(*args))
        except Exception as error:  # noqa: BLE001 - raised where it was called
            error.add_note(traceback.format_exc())
            try:
                send(_RAISED, error)
            except Exception:  # noqa: BLE001 - it cannot be pickled
                send(_RAISED, RuntimeError(traceback.format_exc()))


def _be_the_first_to_go() -> None:
    """Keep a damaged length from taking the machine's memory: no more than there is, and this process pays first."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):  # not every system has these
        import resource

        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if most < 0 else min(limit, most), most))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
