"""``invsim serve`` as people run it, and ``invsim run --server`` against it."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from invsim.cli import main
from invsim.cli.serve import connection
from invsim.errors import InputError
from invsim.service.remote import Remote
from invsim.service.serving import listen
from invsim.sim import scenario as scenarios
from invsim.world import Level, Request, load_domain

TOKEN = "a-token-for-tests"
ACME = load_domain("acme")
GOVERNED = {"plan": "plan_partner_growth", "amount": 49.0}
SPAWN = [sys.executable, "-m", "invsim"]
Capsys = pytest.CaptureFixture[str]


@contextmanager
def command(*args: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run ``invsim serve`` as people do, and yield its URL."""
    env = {name: value for name, value in os.environ.items() if name != "INVSIM_ADMIN_TOKEN"} | environment
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*SPAWN, "serve", *args, "--port", "0"], env=env, **pipes) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1], process
        finally:
            process.kill()


def shuts(host: str, port: int) -> bool:
    """Whether an address stops taking connections within ten seconds."""
    for _ in range(1000):
        try:
            socket.create_connection((host, port), timeout=20).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_is_under_way_finish(number: signal.Signals) -> None:
    with command("acme", "--level", "L4") as (url, process):
        host, port = url.removeprefix("http://").split(":")
        body = json.dumps(GOVERNED).encode()
        head = (
            f"POST /requests HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        with socket.create_connection((host, int(port)), timeout=20) as line:
            line.sendall(head.encode())
            assert line.recv(65536).startswith(b"HTTP/1.1 100 ")  # it has the request, and waits for the body
            process.send_signal(number)
            assert shuts(host, int(port))
            line.sendall(body)
            answer = b""
            while data := line.recv(65536):
                answer += data
        assert answer.startswith(b"HTTP/1.1 422 ")
        assert answer.endswith(ACME.world(level=Level.L4).evaluate(Request(GOVERNED)).to_bytes())
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert re.fullmatch(r"operator token: [\w-]{32}\nstopped\n", process.stderr.read())


def test_a_run_by_command_against_a_serve_by_command(
    capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from-a-file\n", encoding="utf-8")
    args = "run payments --model gpt-5-mini --arms A0,A2D --replications 1 --json"
    with command("payments", "--admin-token-file", str(tmp_path / "token")) as (url, process):
        monkeypatch.setenv("SOME_TOKEN", "from-a-file")
        outputs = []
        for more in (f"--server {url} --admin-token-env SOME_TOKEN", "--engine simpy"):
            assert main([*args.split(), *more.split()]) == 0
            outputs.append(capsys.readouterr().out)
        assert outputs[0] == outputs[1]
        process.terminate()
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert "from-a-file" not in process.stderr.read()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("serve acne", "unknown domain or scenario 'acne': did you mean 'acme'?"),
        ("serve missing.toml", "missing.toml: cannot be read"),
        ("serve bad.toml", "bad.toml: Object missing required field"),
        ("serve acme --level L3", "--level: unknown wire level 'L3'"),
        ("serve acme --port 70000", "'--port'"),
        ("serve acme --port TAKEN", "something listens there already; --port 0 takes a free port"),
        ("serve acme --host 0.0.0.0 --port 0", "--host: other machines can reach that address; --allow-remote"),
        ("serve acme --host nowhere.invalid --allow-remote --port 0", "cannot listen"),
        ("serve acme --admin-token-file empty", "one word of printable ASCII"),
        ("serve acme --admin-token-file missing", "missing: cannot be read"),
        ("run payments --admin-token-env X", "--admin-token-env: goes with --server"),
        ("run payments --server http://127.0.0.1:TAKEN --admin-token-env NONE_SUCH", "NONE_SUCH: the operator's token"),
    ],
)
def test_a_service_that_cannot_be_is_one_line(
    args: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text("", encoding="utf-8")
    Path("empty").write_text("\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(shlex.split(args.replace("TAKEN", port))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_what_other_machines_can_reach_comes_with_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    monkeypatch.delenv("INVSIM_ADMIN_TOKEN", raising=False)
    monkeypatch.setattr("invsim.service.serving.listen", lambda host, port: listen("127.0.0.1", 0))
    monkeypatch.setattr("invsim.service.serving.serve", lambda app, listener: listener.close())
    assert main(["serve", "acme"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert main(["serve", "acme", "--host", "192.0.2.1", "--allow-remote"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("warning: 192.0.2.1 can be reached from other machines, and nothing is encrypted\n")
    tokens = re.findall(r"^operator token: (\S+)$", err, re.M)
    assert len(tokens) == 1


def test_a_token_that_travels_in_the_open_comes_with_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    monkeypatch.setenv("INVSIM_ADMIN_TOKEN", TOKEN)
    for url, warned in (("http://192.0.2.1", True), ("https://192.0.2.1", False), ("http://127.0.0.1:1", False)):
        with connection(ACME, url, "INVSIM_ADMIN_TOKEN"):
            assert ("unencrypted" in capsys.readouterr().err) is warned


def test_a_file_is_a_domain_or_a_scenario(tmp_path: Path, capsys: Capsys) -> None:
    domain, manifest = tmp_path / "mine.toml", tmp_path / "stream.toml"
    domain.write_text(ACME.source.text, encoding="utf-8")
    text = scenarios.shipped_text("payments").replace('"acme"', '"mine.toml"').replace('"payments"', '"my-payments"')
    manifest.write_text(text.replace('"L6"', '"L4"'), encoding="utf-8")
    levels = {}
    for file, more in ((domain, []), (manifest, []), (manifest, ["--level", "L1"])):
        assert main(["serve", str(file), "--print-openapi", *more]) == 0
        document = json.loads(capsys.readouterr().out)
        levels[file.name, *more] = document["components"]["schemas"]["Contract"]["properties"]["level"]["const"]
    assert list(levels.values()) == ["L6", "L4", "L1"]


@pytest.mark.parametrize(
    ("missing", "args"),
    [("starlette", "serve acme"), ("uvicorn", "serve acme"), ("httpx", "run payments --server http://x")],
)
def test_without_the_extra_it_says_how_to_get_it(missing: str, args: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from invsim.cli import main; sys.exit(main({args.split()!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"invsim: this needs {missing}: pip install 'invsim[serve]'\n"


def test_a_service_that_is_killed_ends_the_run_in_one_line() -> None:
    with (
        command("acme", INVSIM_ADMIN_TOKEN=TOKEN) as (url, process),
        Remote(url, token=TOKEN, domain=ACME) as remote,
    ):
        server = remote.connect(ACME.world())
        assert server.handle(Request({"plan": "x"})).ok
        process.kill()
        process.wait(timeout=20)
        with pytest.raises(InputError, match=r"^http://[\d.:]+: (nothing answers there|the connection failed)"):
            server.handle(Request({"plan": "x"}))
