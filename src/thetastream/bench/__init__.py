"""Benchmarks: `python -m thetastream.bench`."""
