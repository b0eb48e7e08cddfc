"""Predicate text to a classified plan, with reasons and costs; knows nothing of Spark itself."""

from thetastream.planner.conjuncts import Conjunct, ConjunctClass
from thetastream.planner.costs import Cost
from thetastream.planner.duration import format_duration, parse_duration
from thetastream.planner.plan import Plan, plan_join
from thetastream.planner.report import Alternative, Decision
from thetastream.planner.types import AnalysisFailure, Analyst

__all__ = [
    "Alternative",
    "AnalysisFailure",
    "Analyst",
    "Conjunct",
    "ConjunctClass",
    "Cost",
    "Decision",
    "Plan",
    "format_duration",
    "parse_duration",
    "plan_join",
]
