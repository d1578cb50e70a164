"""Counts the cells of a record of bench/kernels.py that miss the target for their bandwidth.

python bench/kernels_below.py docs/records/RECORD.json
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from kernelbench import record

ELEMENTWISE = ("vector_add", "bias_act", "gated", "residual", "layout")
TARGETS = {**dict.fromkeys((*ELEMENTWISE, "rotary", "norm"), 97), "softmax": 95}
"""Per cent of a large copy's bandwidth, by family."""
MOVED = 64 << 20
"""Bytes that a cell must move: a smaller one is in the L2 cache or ends before it is at speed."""
HEADER = "| family | cells | below the target | lowest | below, as a copy of as many bytes is |"


def table(found: record.Record) -> Iterator[str]:
    """A row for each family."""
    yield from (HEADER, "|---|---|---|---|---|")
    for family, target in TARGETS.items():
        shares = []
        for row in found.of_family(family).rows:
            if row.bytes_moved >= MOVED and row.of_its_copy is not None:
                bandwidth = found.about[row.run]["copy_bytes_per_second"]
                shares.append([row.percent(who, bandwidth) for who in ("ours", "copy")])
        below = [(ours, copy) for ours, copy in shares if ours < target]
        lowest = f"{min(below)[0]:.0f} %" if below else ""
        as_copy = sum(copy < target for _, copy in below)
        yield f"| {family}, {target} % | {len(shares)} | {len(below)} | {lowest} | {as_copy} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    print(*table(record.read(parser.parse_args().record)), sep="\n")
