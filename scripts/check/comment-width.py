#!/usr/bin/env python3
"""Checks that lines of comments are at most 120 columns wide: scripts/check/comment-width.py

rustfmt checks code alone. MOST is how many wider lines there may be: it may only fall."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = 120
MOST = 1000


def wide_lines():
    """File, number and width of each line that is too wide."""
    for folder in ("src", "tests", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.rs")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if len(line) > COLUMNS and line.lstrip().startswith("//"):
                    yield f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"


def main():
    """Print and compare."""
    found = list(wide_lines())
    if len(found) > MOST:
        print("\n".join(found))
    print(f"comments: {len(found)} lines are wider than {COLUMNS} columns, {MOST} may be")
    sys.exit(len(found) > MOST)


if __name__ == "__main__":
    main()
