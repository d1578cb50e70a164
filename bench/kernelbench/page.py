"""The generated part of a family's page: its plot and its table."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelbench.plot import panels
from kernelbench.record import HostTime, Record, Row, short

BEGIN = "<!-- figures: bench/kernels_docs.py writes this part -->"
END = "<!-- end of figures -->"
PART = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
RECORD = re.compile(r"\[record\]\((?P<path>[^)]+\.json)\)")


def cell(row: Row | None, bandwidth: float) -> str:
    """Ours and the best peer, the loser's marked."""
    if row is None:
        return ""
    if "ours" not in row.times:
        return "**failed**"
    best = row.best_peer

    def figure(who: str) -> str:
        if row.in_time:
            return f"{short(row.times[who].median_us)} µs"
        return f"{row.percent(who, bandwidth):.0f}"

    beside = f" ({best} {figure(best)})" if best else ""
    return f"**✗ {figure('ours')}**{beside}" if row.loses else f"{figure('ours')}{beside}"


def memory(rows: Sequence[Row | None]) -> str:
    """Peak megabytes of a call in the last dtype: ours, and the first peer's."""
    row = next((row for row in reversed(rows) if row is not None), None)
    if row is None or "ours" not in row.times:
        return ""
    peaks = [row.times["ours"].peak_mb]
    peaks += [timing.peak_mb for timing in list(row.peers.values())[:1]]
    return " / ".join(short(peak) for peak in peaks)


def _table(part: Record) -> Iterator[str]:
    dtypes = list(dict.fromkeys(row.dtype for row in part.rows))
    yield "| operator | shape | " + " | ".join(dtypes) + " | MB |"
    yield "|---" * (len(dtypes) + 3) + "|"
    for panel in panels(part.rows):
        for shape in panel.shapes:
            rows = [panel.cells.get((shape, dtype)) for dtype in dtypes]
            cells = [cell(row, part.bandwidth(row) if row else 0.0) for row in rows]
            name = shape.replace("x", " x ")
            yield f"| {panel.title} | {name} | {' | '.join(cells)} | {memory(rows)} |"


def _host(times: Sequence[HostTime]) -> Iterator[str]:
    """Host times, where there are any."""
    if not times:
        return
    yield ""
    yield "| operator | host µs a call | of F.gelu's | others |"
    yield "|---|---|---|---|"
    for time in times:
        own = time.times_us.get("ours")
        others = ", ".join(f"{who} {us:.1f}" for who, us in time.times_us.items() if who != "ours")
        yield (
            f"| {f'{time.op} {time.way}'.strip()} | {'' if own is None else f'{own:.1f}'} "
            f"| {'' if time.of_gelu is None else f'{time.of_gelu:.2f}'} | {others} |"
        )


def part_of(record: Record, family: str, link: str) -> str:
    """The generated part, between its markers."""
    own = record.of_family(family)
    about = own.about[own.rows[0].run]
    lost = sum(row.loses for row in own.rows)
    lines = [
        BEGIN,
        f"![{family}: share of the copy's bandwidth, beside peers]({family}.svg)",
        "",
        f"{about['gpu']}, torch {about['torch']}, fusedops {about['fusedops']}; device events over"
        " graph replays, medians, random inputs that are not in the L2 cache. Per cent of the"
        " bandwidth of a 1 GiB device copy in the same run"
        f" ({about['copy_bytes_per_second'] / 1e12:.2f} TB/s), the best peer's in brackets;"
        " microseconds where a call is little more than a launch. MB: peak memory of a call in"
        " the last dtype, ours / plain PyTorch's."
        f" {len(own.rows)} cells, {lost} lost to a peer by more than 2 % (✗)."
        f" All contestants: [record]({link}).",
        "",
        *_table(own),
        *_host(own.host),
        END,
    ]
    return "\n".join(lines)


def with_part(page: str, part: str) -> str:
    """The page with its generated part replaced, or added at the end."""
    if PART.search(page):
        return PART.sub(lambda _: part, page, count=1)
    return f"{page.rstrip()}\n\n## Figures\n\n{part}\n"


def record_of(page: Path) -> Path | None:
    """The record that a page was made from."""
    part = PART.search(page.read_text(encoding="utf-8"))
    link = RECORD.search(part.group()) if part else None
    return page.parent / link["path"] if link else None
