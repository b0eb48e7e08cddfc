"""A running example: `python -m thetastream.demo`."""
