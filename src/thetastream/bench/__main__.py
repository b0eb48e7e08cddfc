"""`python -m thetastream.bench`."""

import sys

from thetastream.bench.run import main

sys.exit(main())
