"""Work in a process apart: a library that ends its process over a damaged file ends that one, and not the caller's.

The worker is started when it is first needed, serves one call at a time, and is started anew after it has died. It is
this interpreter with the same path and the same invsim, and runs nothing of the caller's main module.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NoReturn

_START = """
import json, sys
root, path = json.loads(sys.argv[1])
sys.path[:] = [root, *path]
import invsim
sys.path[:] = path
from invsim.traces.apart import serve
serve()
"""
_ROOT = str(Path(__file__).resolve().parents[2])

_OWN = frozenset(
    getattr(signal, name, None) for name in ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
)
"""Signals that end a process for what it does; any other comes from outside."""


class Died(Exception):
    """The worker ended in the middle of a call.

    Parameters
    ----------
    code : int
        Its exit code, or less than 0 the signal that ended it.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"ended by {_name(-self.code)}" if self.code < 0 else f"ended with exit code {self.code}"

    @property
    def killed(self) -> bool:
        """Whether it was ended from outside, by whoever was short of memory or of patience."""
        return self.code < 0 and -self.code not in _OWN


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Worker:
    """A process that calls functions of modules for this one; what goes in and comes out is pickled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[..., Any], *args: Any, told: Callable[[Any], None] | None = None) -> Any:
        """Return what a function returns there, or raise what it raises; once more if the worker was killed.

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
            try:
                return self._call(function, args, told)
            except Died as died:
                if not died.killed:
                    raise
            return self._call(function, args, told)

    def close(self) -> None:
        """End the process, even in the middle of a call of another thread."""
        if self._lock.acquire(blocking=False):
            self._end()
            self._lock.release()
        elif (process := self._process) is not None:
            process.kill()

    def forget(self) -> None:
        """Leave the process to whom it belongs: in a process forked from its owner, which may be within a call."""
        self._lock = threading.Lock()
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # nothing to wait for

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], told: Callable[[Any], None] | None) -> Any:
        try:
            return _answer(self._started(), (function, args, told is not None), told)
        except _Raised as raised:
            raise raised.error from None
        except BaseException:  # an interrupted call would be answered in place of the next one
            self._end()
            raise

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        path = [each for each in sys.path if isinstance(each, str)]
        command = [sys.executable or "", "-I", "-X", f"utf8={sys.flags.utf8_mode}", "-c", _START]
        try:
            self._process = process = subprocess.Popen(
                [*command, json.dumps([_ROOT, path])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=-1,
            )  # fmt: skip
        except OSError as error:
            raise OSError(f"{_NO_START}: {error.strerror}") from None
        if not any(line.endswith(_READY) for line in _pipe(process.stdout)):  # what else starts may print something
            raise OSError(f"{_NO_START}: {Died(process.wait())}")
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what was still to be written
                _pipe(pipe).close()
        process.wait()


WORKER = Worker()
atexit.register(WORKER.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKER.forget)

_READY = b"\0ready\n"
_NO_START = "the process that decodes Parquet does not start"
_TOLD, _DONE, _RAISED = "told", "done", "raised"


class _Raised(Exception):
    def __init__(self, error: BaseException) -> None:
        self.error = error


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _answer(process: subprocess.Popen[bytes], request: Any, told: Callable[[Any], None] | None) -> Any:
    _send(process, request)
    while True:
        kind, value = _receive(process)
        if kind == _DONE:
            return value
        if kind == _RAISED:
            raise _Raised(value)
        if told is not None:
            told(value)


def _send(process: subprocess.Popen[bytes], request: Any) -> None:
    data = pickle.dumps(request)
    try:
        pickle.dump(data, _pipe(process.stdin))
        _pipe(process.stdin).flush()
    except BrokenPipeError:
        raise Died(process.wait()) from None


def _receive(process: subprocess.Popen[bytes]) -> Any:
    try:
        return pickle.load(_pipe(process.stdout))
    except (EOFError, pickle.UnpicklingError):
        raise Died(process.wait()) from None


# In the worker ------------------------------------------------------------------------------------------------------


def serve() -> NoReturn:
    """Answer calls from the standard input; end with it, whatever there is still to do."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    _be_the_first_to_go()
    _decode_something()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts both, and the caller ends this one
    answers.write(_READY)
    answers.flush()
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_take, args=(requests, calls), daemon=True).start()

    def send(kind: str, value: Any) -> None:
        answers.write(pickle.dumps((kind, value)))
        answers.flush()

    while True:
        request = calls.get()
        try:
            function, args, telling = pickle.loads(request)
            send(_DONE, function(*args, tell=lambda value: send(_TOLD, value)) if telling else function(*args))
        except Exception as error:  # noqa: BLE001 - raised where it was called
            error.add_note(traceback.format_exc())
            try:
                send(_RAISED, error)
            except Exception:  # noqa: BLE001 - it cannot be pickled
                send(_RAISED, RuntimeError(traceback.format_exc()))


def _decode_something() -> None:
    """Decode a little Parquet, so that want of memory or of a library is not taken for damage to a file."""
    import polars as pl

    file = BytesIO()
    pl.DataFrame({"number": [1], "text": ["a"]}).write_parquet(file)
    file.seek(0)
    pl.scan_parquet(file).collect(engine="streaming")


def _take(requests: IO[bytes], calls: queue.SimpleQueue[bytes]) -> None:
    """Pass requests on; end the process when the caller is no more."""
    while True:
        try:
            calls.put(pickle.load(requests))
        except (EOFError, pickle.UnpicklingError):
            os._exit(0)


def _be_the_first_to_go() -> None:
    """Keep a damaged length from taking the machine's memory: no more than there is, and this process pays first.

    What it would leave behind of itself when it ends is of no use to anybody.
    """
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):  # not every system has these
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = min(each for each in (soft, hard, there) if each != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
