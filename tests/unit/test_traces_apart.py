"""Work in a process apart: what comes back, what becomes of a worker that dies, and that nobody's files mislead it."""

import builtins
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from invsim.errors import InputError
from invsim.traces.apart import Died, Worker
from invsim.traces.parquet import Stretch, Torn, decode, read_footer
from invsim.traces.read import _tally_there

SAMPLE = Path(__file__).parents[1] / "data" / "traces" / "native" / "payments.parquet"


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
    with pytest.raises(Torn):
        worker.call(decode, Path("nowhere.parquet"), (), ("step",), 0, 1)
    assert worker.call(os.getpid) == mine


def test_an_answer_that_cannot_be_pickled_is_told_and_not_taken_for_a_death(worker: Worker) -> None:
    mine = worker.call(os.getpid)
    with pytest.raises(Exception, match="pickle"):
        worker.call(builtins.open, SAMPLE, "rb")
    assert worker.call(os.getpid) == mine


@pytest.mark.parametrize("signal_number", [signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_dies_is_told_and_another_takes_its_place(worker: Worker, signal_number: int) -> None:
    mine = worker.call(os.getpid)
    with pytest.raises(Died):
        worker.call(os.kill, mine, signal_number)
    assert worker.call(os.getpid) != mine


def test_a_worker_killed_between_two_calls_is_not_missed(worker: Worker) -> None:
    mine = worker.call(os.getpid)
    os.kill(mine, signal.SIGKILL)
    for _ in range(500):
        if not Path(f"/proc/{mine}").exists() or worker._process is None or worker._process.poll() is not None:
            break
        time.sleep(0.01)
    assert worker.call(pow, 2, 2) == 4


def test_values_are_told_on_the_way(worker: Worker) -> None:
    footer = read_footer(SAMPLE)
    assert footer is not None
    told: list[int] = []
    stretches = [Stretch(0, 10, tuple(footer.columns)), Stretch(10, footer.rows, tuple(footer.columns))]
    _, size, faults = worker.call(_tally_there, SAMPLE, stretches, True, told=told.append)
    assert told == [10, footer.rows - 10]
    assert size.calls == footer.rows
    assert faults.found == []


def test_a_call_that_is_broken_off_leaves_no_answer_for_the_next(worker: Worker) -> None:
    footer = read_footer(SAMPLE)
    assert footer is not None

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.call(_tally_there, SAMPLE, [Stretch(0, footer.rows, tuple(footer.columns))], True, told=interrupt)
    assert worker.call(pow, 3, 3) == 27


def test_an_input_error_keeps_its_place(worker: Worker, tmp_path: Path) -> None:
    import polars as pl

    rows = pl.read_parquet(SAMPLE).with_columns(outcome=pl.lit("lost"))
    rows.write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match="row 1, outcome: wrong-value") as caught:
        worker.call(
            _tally_there, tmp_path / "x.parquet", [Stretch(0, 5, tuple(rows.columns))], True, told=lambda _: None
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


def test_an_interpreter_that_does_not_start_is_said(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(OSError, match="does not start"):
        worker.call(pow, 1, 1)
    monkeypatch.undo()
    assert worker.call(pow, 1, 1) == 1
