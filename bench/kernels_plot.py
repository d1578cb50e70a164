"""Draws the figures of bench/kernels.py: python bench/kernels_plot.py OUT.json OUT.svg.

Needs matplotlib. One panel per operator, per cent of the run's copy bandwidth, higher is better.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "fusedops"  # the same figures give the same bytes
mpl.rcParams["svg.fonttype"] = "none"  # text stays text
from matplotlib import pyplot as plt  # noqa: E402

WHO = {"ours": "#1b6ca8", "eager": "#c9c9c9", "compile": "#e6a23c", "max-autotune": "#8c6d31"}


def percent(row: dict[str, Any], who: str, copy: float) -> float:
    """Share of the copy's bandwidth, 0 where it did not run."""
    timing = row["times"].get(who)
    return 100 * row["bytes_moved"] / (timing["median_us"] * 1e-6) / copy if timing else 0.0


def draw(record: dict[str, Any], target: Path) -> None:
    """Write the SVG."""
    ops = list(dict.fromkeys(row["op"] for row in record["rows"]))
    figure, axes = plt.subplots(
        len(ops), 1, figsize=(11, 2.8 * len(ops)), squeeze=False, layout="constrained"
    )
    for axis, op in zip(axes[:, 0], ops, strict=True):
        rows = [row for row in record["rows"] if row["op"] == op]
        for i, (who, colour) in enumerate(WHO.items()):
            places = [at + (i - 1.5) * 0.2 for at in range(len(rows))]
            heights = [percent(row, who, record["copy_bytes_per_second"]) for row in rows]
            axis.bar(places, heights, 0.2, label=who, color=colour)
        labels = [f"{row['dtype']}\n{row['shape'][0]}x{row['shape'][1]}" for row in rows]
        axis.set_xticks(range(len(rows)), labels, fontsize=7)
        axis.axhline(100, color="black", linewidth=0.6)
        axis.set_ylabel("% of copy")
        axis.set_title(op, loc="left")
    about = record["about"]
    axes[0, 0].legend(ncols=4, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1))
    figure.suptitle(f"{about['gpu']}, torch {about['torch']}, fusedops {about['fusedops']}")
    figure.savefig(target, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("svg", type=Path)
    options = parser.parse_args()
    draw(json.loads(options.record.read_text(encoding="utf-8")), options.svg)


if __name__ == "__main__":
    main()
