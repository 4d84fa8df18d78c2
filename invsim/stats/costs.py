"""The token model: what an attempt costs, relative to the base cost of one."""

from __future__ import annotations

from dataclasses import dataclass

from invsim.stats.moments import Weights


@dataclass(frozen=True)
class TokenCosts:
    """Tokens = sum over attempts of [base + per_retry if a retry + per_entry * entries in the block] + conflict cost.

    Parameters
    ----------
    base, per_retry, per_entry : float
        In units of an attempt's base cost. The defaults are fitted to the token savings in Table 6 of Wu and Canedo
        (2026), with standard errors of 0.049 and 0.0018 (``invsim calibrate --tokens``); the whole store is injected,
        so every entry of it is paid for at each attempt.
    conflict : float
        Extra for an attempt that carries a stale and a fresh entry for its key; a property of the model.
    """

    base: float = 1.0
    per_retry: float = 0.117
    per_entry: float = 0.0041
    conflict: float = 0.0

    def weights(self, *, attempts: str, entries: str, conflicts: str, one: str, episodes: int) -> Weights:
        """Return tokens per stream as a combination of counts; retries are attempts less one per episode."""
        return {
            attempts: self.base + self.per_retry,
            one: -self.per_retry * episodes,
            entries: self.per_entry,
            conflicts: self.conflict,
        }
