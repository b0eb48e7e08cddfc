"""Benchmarks: `python -m bench.run`."""
