"""The rooms of the package, and who may import whom.

Every import counts, wherever it stands: at the top of a module, inside a function, under
``TYPE_CHECKING``, or as a literal name handed to ``importlib.import_module`` or ``__import__``.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "invsim"
ROOT = Path(__file__).resolve().parents[2]

# Top-level names under invsim and the room each lives in. The package root itself is the
# "facade": it hands out names of every room, and only the command line looks at it.
ROOM_OF = {
    "errors": "base",
    "files": "base",
    "rng": "base",
    "located": "base",
    "data": "base",
    "world": "world",
    "client": "client",
    "sim": "sim",
    "stats": "stats",
    "traces": "traces",
    "fit": "fit",
    "report": "report",
    "experiment": "experiment",
    "explain": "experiment",
    "calibrate": "experiment",
    "record": "experiment",
    "whatif": "experiment",
    "uncertain": "experiment",
    "sweep": "experiment",
    "keep": "experiment",
    "service": "service",
    "live": "live",
    "paper": "paper",
    "cli": "cli",
    "__main__": "cli",
}

ALL_ROOMS = {room for room in ROOM_OF.values() if room != "cli"}

# In order. Each room imports itself and earlier rooms; stats takes arrays and frames and knows no simulator.
MAY_IMPORT = {
    "base": {"base"},
    "world": {"base", "world"},
    "client": {"base", "world", "client"},
    "sim": {"base", "world", "client", "sim"},
    "stats": {"base", "stats"},
    "traces": {"base", "world", "traces"},
    "fit": {"base", "world", "client", "stats", "traces", "fit"},
    "report": {"base", "world", "client", "sim", "stats", "report"},
    "service": {"base", "world", "service"},
    "experiment": {"base", "world", "client", "sim", "stats", "traces", "experiment"},
    "live": {"base", "world", "client", "sim", "stats", "traces", "fit", "experiment", "service", "live"},
    "paper": {"base", "world", "client", "sim", "stats", "traces", "fit", "report", "experiment", "paper"},
    "cli": ALL_ROOMS | {"cli", "facade"},
    "facade": ALL_ROOMS | {"facade"},
}

# Libraries that only one module, or one subpackage, may import.
ONLY_IN = {
    "anthropic": "invsim.live",
    "distributed": "invsim.cli.sweep",
    "httpx2": "invsim.live",
    "openai": "invsim.live",
    "simpy": "invsim.sim.engine",
    "matplotlib": "invsim.report",
    "starlette": "invsim.service",
    "uvicorn": "invsim.service",
}

ROOM_PACKAGES = ("world", "client", "sim", "stats", "traces", "report")
HEAVY = ("scipy", "polars", "matplotlib", "simpy", "numpy", "starlette", "uvicorn", "httpx")


def room_of(module: str) -> str | None:
    """The room of a dotted name inside the package; None when it has been given none."""
    parts = module.split(".")
    return "facade" if len(parts) == 1 else ROOM_OF.get(parts[1])


def absolute(name: str, level: int, package: str) -> str:
    """The dotted name that ``level`` dots and ``name`` stand for inside ``package``."""
    if level == 0:
        return name
    parts = package.split(".")
    if level > len(parts):
        raise ImportError(f"{'.' * level}{name} climbs out of {package}")
    return ".".join(parts[: len(parts) - level + 1] + ([name] if name else []))


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted target of every import in a module that sits in ``package``."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=name, names=names, level=level):
                base = absolute(name or "", level, package)
                for alias in names:
                    # A name taken from the package root is a room, or else an attribute of the root.
                    attribute = base == PACKAGE and alias.name not in ROOM_OF
                    yield node.lineno, base if attribute else f"{base}.{alias.name}"
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                rest = name.lstrip(".")
                yield node.lineno, absolute(rest, len(name) - len(rest), package)


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Every breach of the architecture in one module's source."""
    room = room_of(module)
    if room is None:
        return [f"{module}: belongs to no room; give it one in ROOM_OF"]
    found = []
    for line, target in imports(source, module if is_package else module.rpartition(".")[0]):
        top = target.partition(".")[0]
        if top == PACKAGE and room_of(target) not in MAY_IMPORT[room]:
            found.append(f"{module}:{line}: {room} must not import {target}")
        owner = ONLY_IN.get(top)
        if owner and module != owner and not module.startswith(owner + "."):
            found.append(f"{module}:{line}: only {owner} may import {top}")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    """Dotted name and path of every module that exists."""
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@pytest.mark.parametrize("room", ROOM_PACKAGES)
def test_room_exists(room: str) -> None:
    assert (ROOT / PACKAGE / room / "__init__.py").is_file()


def test_every_module_keeps_to_its_room() -> None:
    found = [
        breach
        for name, path in modules()
        for breach in violations(name, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("module", ["invsim", "invsim.cli"])
def test_import_is_light(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


# The checker itself: each of these must be caught ...
@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("invsim.errors", "import invsim.world"),
        ("invsim.world.clock", "from invsim.client import cache"),
        ("invsim.world.clock", "from invsim import client"),
        ("invsim.world.clock", "from .. import client"),
        ("invsim.world.clock", "from ..client.cache import Cache"),
        ("invsim.world.clock", "def f():\n    from ..sim import engine"),
        ("invsim.world.clock", "if TYPE_CHECKING:\n    from ..sim.engine import Engine"),
        ("invsim.world.clock", "import importlib\nimportlib.import_module('invsim.sim.engine')"),
        ("invsim.world.clock", "import_module('..sim', __package__)"),
        ("invsim.client.cache", "import json, invsim.sim.engine as engine"),
        ("invsim.sim.engine", "from invsim.stats.tests import paired"),
        ("invsim.stats.tests", "from ..world import clock"),
        ("invsim.stats.tests", "from ..client import cache"),
        ("invsim.stats.tests", "from ..sim import engine"),
        ("invsim.stats.tests", "from invsim.report import tables"),
        ("invsim.report.tables", "from invsim.experiment import run"),
        ("invsim.report.tables", "from ..cli import main"),
        ("invsim.experiment", "from . import report"),
        ("invsim.experiment", "from .report.tables import write"),
        ("invsim.sim.clock", "import simpy"),
        ("invsim.sim.engines", "from simpy.events import Event"),
        ("invsim.cli", "def f():\n    import simpy"),
        ("invsim.stats.tests", "import matplotlib.pyplot as plt"),
        ("invsim.reporting", "import json"),
        ("invsim.world.clock", "import invsim.nowhere"),
    ],
)
def test_checker_catches(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


# ... a package's own dots count from the package itself ...
def test_checker_resolves_dots_of_a_package() -> None:
    source = "from ..stats import tests"
    assert violations("invsim.world", source, is_package=True) == [
        "invsim.world:1: world must not import invsim.stats.tests"
    ]
    with pytest.raises(ImportError, match="climbs out"):
        violations("invsim.world", "from ...stats import tests", is_package=True)


# ... and each of these must pass.
@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("invsim.errors", "import numpy as np"),
        ("invsim.rng", "from .errors import InvsimError"),
        ("invsim.world.clock", "from invsim import errors"),
        ("invsim.world.clock", "from . import domains\nfrom .domains import Domain"),
        ("invsim.client.cache", "from ..world.clock import Clock"),
        ("invsim.sim.engine", "import simpy\nfrom simpy.events import Event\nfrom ..client import cache"),
        ("invsim.stats.tests", "import numpy, polars\nfrom scipy import stats\nfrom ..rng import stream"),
        ("invsim.report.tables", "import matplotlib.pyplot\nfrom .. import sim, stats, client, world"),
        ("invsim.experiment", "from .stats import tests\nfrom .sim.engine import simulate"),
        ("invsim.cli", "from . import experiment\nfrom .report import tables"),
        ("invsim.__main__", "from .cli import main"),
    ],
)
def test_checker_allows(module: str, source: str) -> None:
    assert violations(module, source) == []
