"""Predicate text to a classified plan, with reasons and costs; knows nothing of Spark itself."""

from thetastream.durations import format_duration, parse_duration
from thetastream.planner.conjuncts import Conjunct, ConjunctClass
from thetastream.planner.costs import Cost
from thetastream.planner.finish import Finish
from thetastream.planner.joins import plan_join
from thetastream.planner.names import suggestion
from thetastream.planner.parser import is_query, parse_query
from thetastream.planner.plan import Plan
from thetastream.planner.plan_query import (
    AGGREGATION,
    DUPLICATES,
    TIME_WINDOW,
    QueryPlan,
    plan_query,
)
from thetastream.planner.query import Query
from thetastream.planner.report import Alternative, Decision
from thetastream.planner.request import SiteFacts
from thetastream.planner.tables import html_table, text_notes, text_table
from thetastream.planner.types import AnalysisFailure, Analyst, Parallelism

__all__ = [
    "AGGREGATION",
    "DUPLICATES",
    "TIME_WINDOW",
    "Alternative",
    "AnalysisFailure",
    "Analyst",
    "Conjunct",
    "ConjunctClass",
    "Cost",
    "Decision",
    "Finish",
    "Parallelism",
    "Plan",
    "Query",
    "QueryPlan",
    "SiteFacts",
    "format_duration",
    "html_table",
    "is_query",
    "parse_duration",
    "parse_query",
    "plan_join",
    "plan_query",
    "suggestion",
    "text_notes",
    "text_table",
]
