"""`python -m fabled`: the same as the `fabled` command."""

import sys

from fabled.client.main import main

if __name__ == "__main__":
    sys.exit(main())
