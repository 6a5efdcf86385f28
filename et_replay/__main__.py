"""`python -m et_replay` is `et_replay`."""

import sys

from et_replay.commands import main

if __name__ == "__main__":
    sys.exit(main())
