"""`python -m thetastream`."""

import sys

from thetastream.cli.main import main

sys.exit(main())
