"""The entry point of the `grader` command, which handles Ctrl-C from the first import on."""

from __future__ import annotations

import sys
from pathlib import Path

# `python -m grader` puts the current folder first in the import path, where a submission's `rich/` would be taken for the library.
if sys.path and Path(sys.path[0] or ".").resolve() != Path(__file__).resolve().parent.parent and __name__ == "__main__":
    del sys.path[0]


def main() -> None:
    """Entry point of `grader` and of `python -m grader`."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # print ? for a sign that the terminal cannot show
        from grader.cli import app

        app()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
