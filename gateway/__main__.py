"""``python -m gateway`` is ``voxwire``."""

import sys

from gateway.cli import main

if __name__ == "__main__":
    sys.exit(main())
