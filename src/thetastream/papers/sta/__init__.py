"""STA: inequality joins in which frequent values have elements of their own."""

from thetastream.papers.sta.page import PAPER

__all__ = ["PAPER"]
