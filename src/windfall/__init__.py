"""Windfall runs batch jobs on capacity that can be taken away, and never loses their work."""

__version__ = "0.1.0"
