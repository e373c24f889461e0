"""What the Python programs share: verdict lines and the exit status."""

import sys

_failed = False


def check(name, holds, evidence=""):
    """Prints `ok NAME`, or `FAIL NAME: ` and the evidence."""
    global _failed
    if holds:
        print(f"ok {name}", flush=True)
    else:
        print(f"FAIL {name}: {evidence}", flush=True)
        _failed = True


def verdict():
    """Ends the program."""
    sys.exit(1 if _failed else 0)
