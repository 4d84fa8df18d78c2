"""Peak memory of a command."""

from __future__ import annotations

import subprocess
import sys

# A child starts with its parent's peak, so a small process in between is the parent.
BETWEEN = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
UNIT = 1 if sys.platform == "darwin" else 1024


def peak_of(command: list[str]) -> float:
    """Return the peak memory of a command, in MiB."""
    answer = subprocess.run([sys.executable, "-c", BETWEEN, *command], capture_output=True, text=True, check=True)
    return int(answer.stdout) * UNIT / 2**20
