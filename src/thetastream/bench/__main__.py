"""`python -m thetastream.bench`."""

import sys

from thetastream.cli.main import main

# By way of the command, which says what to install if a package is missing.
sys.exit(main(["bench", *sys.argv[1:]]))
