"""SQL text to the planner's own trees: the one place that knows the parser."""

from thetastream.planner.parser.expressions import parse_predicate
from thetastream.planner.parser.queries import parse_query

__all__ = ["parse_predicate", "parse_query"]
