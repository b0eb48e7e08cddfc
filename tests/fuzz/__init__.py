"""Fuzzers: random joins and queries against Spark's own batch evaluation.

python -m tests.fuzz predicates --seconds 600
"""
