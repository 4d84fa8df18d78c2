"""Keys come from the environment and go nowhere else: whatever a server sends back is cleaned of them."""

from __future__ import annotations

import os
import re
from typing import Any

SHORTEST = 8
"""Characters from which a value counts as a secret: a shorter one occurs by accident."""

BLANK = "[key removed]"

_NAMED = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|CUSTOM_HEADERS)", re.IGNORECASE)


def secrets() -> list[str]:
    """Return the values of the environment that are kept out of everything written, the longest first."""
    values = {value.strip() for name, value in os.environ.items() if _NAMED.search(name)}
    return sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)


def scrubbed(value: Any) -> Any:
    """Return plain data with every secret in its texts blanked out, names of fields included."""
    return _scrub(value, secrets())


def _scrub(value: Any, hidden: list[str]) -> Any:
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, BLANK)
        return value
    if isinstance(value, dict):
        return {_scrub(name, hidden): _scrub(each, hidden) for name, each in value.items()}
    if isinstance(value, list):
        return [_scrub(each, hidden) for each in value]
    return value
