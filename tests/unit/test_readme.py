"""The README's Python and its command lines run as they stand."""

import re
import shlex
from pathlib import Path

import pytest

from invsim.cli import main

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.removeprefix("$ ").removeprefix(".venv/bin/").split("#")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith(("$ invsim", "$ .venv/bin/invsim"))
]


def test_python_blocks_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 3
    namespace: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    out = capsys.readouterr().out
    assert out.count("Estimate(value=") == 3
    # Clearing everything evicts four entries at the rotation and four at the bump, give or take exhausted episodes.
    assert 6 < float(re.findall(r"value=([\d.]+)", out)[-1]) < 10


def test_command_lines_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) >= 9
    for command in COMMANDS:
        arguments = shlex.split(command)[1:]
        assert main(arguments) == 0, command
    captured = capsys.readouterr()
    assert captured.err == ""
    assert (tmp_path / "log.jsonl").stat().st_size > 0
