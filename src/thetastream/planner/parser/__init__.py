"""SQL text to the planner's own trees: the one place that knows the parser."""

from thetastream.planner.parser.expressions import parse_predicate
from thetastream.planner.parser.queries import parse_query
from thetastream.planner.parser.texts import is_query

__all__ = ["is_query", "parse_predicate", "parse_query"]
