"""Discrete-event simulation and analysis of invalidation contracts."""

__version__ = "0.1.0"
