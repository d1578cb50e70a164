"""Writes the figures of docs/ops from a record of bench/kernels.py.

    python bench/kernels_docs.py docs/records/RECORD.json [--family norm] [--docs docs/ops]
    python bench/kernels_docs.py --check

A family's page gets a table between two markers (added at its end if it has none) and a plot beside
it. --check says which pages are not what the records that they name would give.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from kernelbench import page, plot, record

DOCS = Path(__file__).parent.parent / "docs" / "ops"


def made(found: record.Record, source: Path, family: str, docs: Path) -> dict[Path, str]:
    """The family's files, as they are to be."""
    path = docs / f"{family}.md"
    link = Path(os.path.relpath(source, docs)).as_posix()
    text = page.with_part(path.read_text(encoding="utf-8"), page.part_of(found, family, link))
    return {path: text, docs / f"{family}.svg": plot.draw(found, family)}


def stale(docs: Path) -> Iterator[Path]:
    """Files that are not what their page's record would give."""
    for path in sorted(docs.glob("*.md")):
        source = page.record_of(path)
        if source is None:
            continue
        for target, text in made(record.read(source), source, path.stem, docs).items():
            if not target.exists() or target.read_text(encoding="utf-8") != text:
                yield target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, nargs="?")
    parser.add_argument("--family", nargs="+", help="these alone (default: all of the record)")
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.check:
        found = list(stale(options.docs))
        for path in found:
            print(f"{path} is stale: run bench/kernels_docs.py with its record", file=sys.stderr)
        return 1 if found else 0
    if options.record is None:
        parser.error("a record or --check expected")
    data = record.read(options.record)
    for family in options.family or data.families():
        if not (options.docs / f"{family}.md").exists():
            print(f"{family}: no page {options.docs / family}.md, nothing written")
            continue
        for path, text in made(data, options.record, family, options.docs).items():
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
