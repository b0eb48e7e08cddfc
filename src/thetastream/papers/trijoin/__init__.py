"""TriJoin's figures: three streams without waiting, against BiStream+Tree."""

from thetastream.papers.trijoin.figures import PAPER

__all__ = ["PAPER"]
