"""`python -m evsrc.cli`: the same as the program `evsrc`."""

import sys

from evsrc.cli import main

if __name__ == "__main__":
    sys.exit(main())
