from thetastream.spec import *  # noqa: F403
