"""Data that the package ships: published figures with their source, and model profiles."""
