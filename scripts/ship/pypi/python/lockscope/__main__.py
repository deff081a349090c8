"""`python -m lockscope`: the program of this Python's package, whatever the PATH says."""

from __future__ import annotations

import os
import sys

from . import binary

#: lockscope could not look; 1 would say that there is a deadlock.
COULD_NOT_LOOK = 2


def main() -> int:
    """Becomes the program; returns only if that is not possible."""
    try:
        program = binary()
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        print(f"lockscope: {error}", file=sys.stderr)
    return COULD_NOT_LOOK


if __name__ == "__main__":
    sys.exit(main())
