"""Joins of streams on any predicate, inside Spark Structured Streaming."""

__version__ = "0.1.0"
