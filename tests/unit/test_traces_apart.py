"""Work in a process apart: what comes back, what becomes of a worker that dies, and that nobody's files mislead it."""

import builtins
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from invsim.errors import InputError
from invsim.traces.apart import Died, Worker
from invsim.traces.parquet import File, Footer, Stretch, Torn, decode, read_footer
from invsim.traces.read import _tally_there

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "data" / "traces" / "native" / "payments.parquet"


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def test_a_function_is_called_in_another_process_and_one_worker_serves_all_calls(worker: Worker) -> None:
    first = worker.call(os.getpid)
    assert first != os.getpid()
    assert worker.call(os.getpid) == first
    assert worker.call(pow, 2, 10) == 1024


def test_what_it_raises_is_raised_here_and_the_worker_lives_on(worker: Worker) -> None:
    mine = worker.call(os.getpid)
    with pytest.raises(ZeroDivisionError, match="division") as caught:
        worker.call(divmod, 1, 0)
    assert "Traceback" in caught.value.__notes__[0]
    with pytest.raises(Torn, match="holds 24 rows where 25 should be"):
        worker.call(decode, File.at(SAMPLE), ("step",), ("step",), 0, 25)
    assert worker.call(os.getpid) == mine


def test_an_answer_that_cannot_be_pickled_is_told_and_not_taken_for_a_death(worker: Worker) -> None:
    mine = worker.call(os.getpid)
    with pytest.raises(Exception, match="pickle"):
        worker.call(builtins.open, SAMPLE, "rb")
    assert worker.call(os.getpid) == mine


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_a_worker_that_dies_is_told_and_another_takes_its_place(worker: Worker, number: signal.Signals) -> None:
    mine = worker.call(os.getpid)
    with pytest.raises(Died, match=f"ended by {number.name}"):
        worker.call(os.kill, mine, number)
    assert worker.call(os.getpid) != mine


def test_a_worker_that_leaves_is_told(worker: Worker) -> None:
    with pytest.raises(Died, match="ended with exit code 3"):
        worker.call(os._exit, 3)


def test_a_call_whose_worker_was_killed_from_outside_is_made_once_more(worker: Worker) -> None:
    mine = worker.call(os.getpid)
    with pytest.raises(ProcessLookupError):  # says the second, of the first
        worker.call(os.kill, mine, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_call_is_not_made_a_third_time(worker: Worker, number: signal.Signals) -> None:
    with pytest.raises(Died, match=f"ended by {number.name}") as caught:
        worker.call(signal.raise_signal, number)
    assert caught.value.killed


def test_a_worker_minds_no_interrupt_of_its_own(worker: Worker) -> None:
    """A terminal interrupts it too; it is for the caller to say what becomes of a call."""
    mine = worker.call(os.getpid)
    os.kill(mine, signal.SIGINT)
    assert worker.call(os.getpid) == mine


def test_a_worker_killed_between_two_calls_is_not_missed(worker: Worker) -> None:
    mine = worker.call(os.getpid)
    os.kill(mine, signal.SIGKILL)
    for _ in range(500):
        if not Path(f"/proc/{mine}").exists() or worker._process is None or worker._process.poll() is not None:
            break
        time.sleep(0.01)
    assert worker.call(pow, 2, 2) == 4


def footer() -> Footer:
    found = read_footer(File.at(SAMPLE))
    assert found is not None
    return found


def test_values_are_told_on_the_way(worker: Worker) -> None:
    file, columns, rows = footer()
    told: list[int] = []
    stretches = [Stretch(0, 10, tuple(columns)), Stretch(10, rows, tuple(columns))]
    _, size, faults = worker.call(_tally_there, file, stretches, True, told=told.append)
    assert told == [10, rows - 10]
    assert size.calls == rows
    assert faults.found == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, EOFError, BrokenPipeError])
def test_a_call_that_is_broken_off_leaves_no_answer_for_the_next(worker: Worker, error: type[BaseException]) -> None:
    file, columns, rows = footer()

    def interrupt(_: int) -> None:
        raise error

    with pytest.raises(error):
        worker.call(_tally_there, file, [Stretch(0, rows, tuple(columns))], True, told=interrupt)
    assert worker.call(pow, 3, 3) == 27


def test_an_input_error_keeps_its_place(worker: Worker, tmp_path: Path) -> None:
    import polars as pl

    rows = pl.read_parquet(SAMPLE).with_columns(outcome=pl.lit("lost"))
    rows.write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match="row 1, outcome: wrong-value") as caught:
        worker.call(
            _tally_there,
            File.at(tmp_path / "x.parquet"),
            [Stretch(0, 5, tuple(rows.columns))],
            True,
            told=lambda _: None,
        )
    assert caught.value.where.endswith("row 1, outcome")


def test_what_the_working_folder_holds_is_not_run(tmp_path: Path) -> None:
    for name in ("json", "pickle", "polars", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('mine')\n")
    program = "import sys; from invsim.traces.apart import WORKER; print(WORKER.call(pow, 2, 5))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("32\n", "", 0)


def test_a_script_without_a_main_guard_is_not_run_again(tmp_path: Path) -> None:
    lines = (
        "print('begun')",
        "from invsim.traces.read import read_tally",
        f"print(read_tally([{str(SAMPLE)!r}])[1][0].calls)",
    )
    script = tmp_path / "script.py"
    script.write_text("\n".join(lines))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "begun\n24\n"
    assert done.stderr == ""


def said_by(program: str) -> tuple[str, str]:
    """What a program puts out, and its errors."""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout, done.stderr


def test_it_runs_the_same_invsim_wherever_the_caller_has_gone(worker: Worker, tmp_path: Path) -> None:
    """An entry of the path that says "here" is somewhere else by now; one that is no text is none."""
    other = tmp_path / "invsim"
    other.mkdir()
    (other / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    program = (
        "import os, sys, invsim; from pathlib import Path; from invsim.traces.apart import WORKER; "
        f"os.chdir({str(tmp_path)!r}); sys.path[:0] = ['', Path('y')]; "
        "print(WORKER.call(eval, '__import__(\"invsim\").__file__') == invsim.__file__)"
    )
    assert said_by(program) == ("True\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle_of_a_call_starts_its_own() -> None:
    """Its parent's worker answers its parent; nor does it wait for a lock that nobody there will open."""
    program = """
import os, threading, time
from invsim.traces.apart import WORKER
mine = WORKER.call(os.getpid)
busy = threading.Thread(target=WORKER.call, args=(time.sleep, 2))
busy.start()
while not WORKER._lock.locked():
    time.sleep(0.01)
if not os.fork():
    print(WORKER.call(os.getpid) != mine, WORKER.call(pow, 2, 3), flush=True)
    WORKER.close()
    os._exit(0)
os.wait()
busy.join()
print(WORKER.call(os.getpid) == mine)
"""
    assert said_by(program) == ("True 8\nTrue\n", "")


def test_a_program_ends_in_the_middle_of_a_call_of_another_thread() -> None:
    program = """
import threading, time
from invsim.traces.apart import WORKER
threading.Thread(target=WORKER.call, args=(time.sleep, 600), daemon=True).start()
while WORKER._process is None:
    time.sleep(0.01)
print("done")
"""
    assert said_by(program) == ("done\n", "")


def gone(process: int) -> bool:
    """Whether a process has ended, whoever is to take note of that."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_caller_in_the_middle_of_a_call(number: int) -> None:
    program = (
        "import os, time; from invsim.traces.apart import WORKER; "
        "print(WORKER.call(os.getpid), flush=True); WORKER.call(time.sleep, 600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        worker = int(caller.stdout.readline())
        caller.send_signal(number)
    for _ in range(1000):
        if gone(worker):
            return
        time.sleep(0.02)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("it lives on")


@pytest.mark.skipif(sys.platform != "linux", reason="limits are set on Linux")
def test_it_takes_no_more_than_it_is_given_and_leaves_nothing_behind() -> None:
    program = (
        "import resource; from invsim.traces.apart import WORKER; "
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 33, resource.getrlimit(resource.RLIMIT_DATA)[1])); "
        "print(WORKER.call(resource.getrlimit, resource.RLIMIT_DATA)[0] <= 1 << 33, "
        "WORKER.call(resource.getrlimit, resource.RLIMIT_CORE)[0])"
    )
    assert said_by(program) == ("True 0\n", "")


def test_a_library_that_cannot_be_loaded_is_not_taken_for_a_call_that_failed(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "polars.py").write_text("raise MemoryError")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OSError, match="does not start: ended with exit code 1"):
        worker.call(pow, 1, 1)
    monkeypatch.undo()
    assert worker.call(pow, 1, 1) == 1


@pytest.mark.parametrize(
    ("executable", "said"),
    [("/bin/true", "ended with exit code 0"), ("/nowhere", "No such file"), ("", ""), (None, "")],
)
def test_an_interpreter_that_does_not_start_is_said(
    executable: str | None, said: str, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(OSError, match=f"the process that decodes Parquet does not start: {said}"):
        worker.call(pow, 1, 1)
    monkeypatch.undo()
    assert worker.call(pow, 1, 1) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_what_is_printed_at_its_start_is_no_answer(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = tmp_path / "python"
    noisy.write_text(f'#!/bin/sh\necho R; printf R\nexec "{sys.executable}" "$@"\n')
    noisy.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(noisy))
    assert worker.call(pow, 2, 3) == 8


def test_threads_share_a_worker(worker: Worker) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number: worker.call(pow, 2, number), range(200))) == [
            2**each for each in range(200)
        ]
        assert len(set(pool.map(lambda _: worker.call(os.getpid), range(20)))) == 1
