"""What Wu and Canedo (2026) print, where reports look for it; the reader is ``invsim.data.published``."""

from __future__ import annotations

from invsim.data.published import RULE_STREAM_MODELS, Published, drifted_integers, lookup, published

__all__ = ["RULE_STREAM_MODELS", "Published", "drifted_integers", "lookup", "published"]
