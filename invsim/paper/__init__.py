"""The paper, made again: its tables, its figures, and an audit of every number it prints."""
