"""Readers of the formats that others write. Importing the package makes them known."""
