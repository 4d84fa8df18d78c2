"""``python -m invsim``."""

import sys

from invsim.cli import main

if __name__ == "__main__":
    sys.exit(main())
