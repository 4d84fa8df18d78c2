"""The artifacts of the paper, in its order. One line adds one."""

from __future__ import annotations
