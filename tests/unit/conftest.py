"""Property tests are bounded by their number of examples, never by the speed of the machine they run on.

The service that several modules of tests call is opened here, for the operator's token "a-token-for-tests".
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from invsim.service.state import Service

    Served = tuple[str, Service]

settings.register_profile("unit", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")


@contextmanager
def _serving(domain: str = "acme", level: str = "L6") -> Iterator["Served"]:
    from invsim.service.app import build_app
    from invsim.service.serving import running
    from invsim.service.state import Service
    from invsim.world import Level, load_domain

    service = Service(load_domain(domain), level=Level[level])
    with running(build_app(service, token="a-token-for-tests")) as url:
        yield url, service


@pytest.fixture(scope="session")
def serving() -> Callable[..., AbstractContextManager["Served"]]:
    """Open a server of a domain at a wire level, and yield its URL and its service."""
    return _serving


@pytest.fixture(scope="module")
def _shared() -> Iterator["Served"]:
    with _serving() as both:
        yield both


@pytest.fixture
def served(_shared: "Served") -> "Served":
    """One server of acme for all tests of a module, at its start again."""
    _shared[1].reset()
    return _shared
