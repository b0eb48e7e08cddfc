"""The Epoch join: a window join of a master and its slaves, in epochs."""

from thetastream.papers.epochjoin.page import PAPER

__all__ = ["PAPER"]
