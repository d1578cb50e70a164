"""Merges records of bench/kernels.py.

    python bench/kernels_merge.py OUT.json IN.json…

The last record that has a cell is believed. They must be of one kind of GPU and one torch.
"""

import argparse
import sys
from pathlib import Path

from kernelbench import record, terminal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("records", type=Path, nargs="+")
    options = parser.parse_args()
    try:
        found = record.merged(map(record.read, options.records))
    except ValueError as error:
        print(f"bench kernels: {error}", file=sys.stderr)
        return 2
    record.write(found, options.out)
    print(*terminal.summary(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
