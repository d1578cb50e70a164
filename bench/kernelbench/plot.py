"""A family's figures as an SVG, the same bytes for the same record."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kernelbench.record import YARDSTICKS, Record, Row, short
from kernelbench.terminal import title

OURS, LOST = "#1b6ca8", "#c0392b"
COLOURS = {
    "eager": "#8a8a8a",
    "compile": "#e6a23c",
    "max-autotune": "#8c6d31",
    "liger": "#2a9d5c",
    "flashinfer": "#7b3fa0",
}
FURTHER = ("#d6578f", "#17a2b8", "#5c6bc0")  # for peers without a colour of their own

LABEL, COLUMN, GAP, MARGIN = 128, 250, 50, 16
ROW, TITLE, TOP = 20, 42, 66
SCALE_END = 110.0  # per cent; what is more is drawn there
LEGEND_WIDTH = 560


STYLE = (
    "<style>.page{fill:#fff}text{fill:#1a1a1a}.grid{stroke:#333}.dot{stroke:#fff}"
    f".ours{{fill:{OURS}}}.lost,text.lost{{fill:{LOST}}}"
    "@media (prefers-color-scheme:dark){.page{fill:#131416}text{fill:#d8dade}"
    ".grid{stroke:#8d93a0}.dot{stroke:#131416}.ours{fill:#5aa9e6}.lost,text.lost{fill:#ff7b6b}}"
    "</style>"
)
"""The colours of both themes."""
UNITS = {False: "per cent of a device copy's bandwidth", True: "per cent of the fastest"}
"""What an axis shows, by whether a call is compared by its time."""


@dataclass(frozen=True)
class Panel:
    """The cells of one way of calling an operator, by shape and dtype."""

    title: str
    unit: str
    shapes: Sequence[str]
    dtypes: Sequence[str]
    cells: dict[tuple[str, str], Row]

    @property
    def height(self) -> int:
        """In pixels."""
        return TITLE + ROW * len(self.shapes) + 12


def panels(rows: Sequence[Row], *, one_unit: bool = False) -> list[Panel]:
    """In the record's order; with `one_unit`, calls that are compared by time have their own."""
    grouped: dict[tuple[str, bool], list[Row]] = {}
    for row in rows:
        grouped.setdefault((title(row), one_unit and row.in_time), []).append(row)
    return [
        Panel(
            name,
            UNITS[in_time],
            list(dict.fromkeys(row.shape for row in group)),
            list(dict.fromkeys(row.dtype for row in group)),
            {(row.shape, row.dtype): row for row in group},
        )
        for (name, in_time), group in grouped.items()
    ]


def shown(row: Row, who: str, bandwidth: float) -> float:
    """Per cent of the copy's bandwidth; of the fastest, where a call is compared by its time."""
    if not row.in_time:
        return row.percent(who, bandwidth)
    fastest = min(row.times[name].median_us for name in row.times if name != "copy")
    return 100 * fastest / row.times[who].median_us


def figure(row: Row, bandwidth: float) -> str:
    """What stands beside a bar."""
    if "ours" not in row.times:
        return "failed"
    if not row.in_time:
        return f"{row.percent('ours', bandwidth):.0f} %"
    return f"{short(row.times['ours'].median_us)} µs"


def _colours(record: Record) -> dict[str, str]:
    """By contestant, those of the record alone."""
    names = [who for row in record.rows for who in row.times if who not in YARDSTICKS]
    peers = list(dict.fromkeys(names))
    further = iter(FURTHER * len(peers))
    known = [who for who in COLOURS if who in peers]
    others = [who for who in peers if who not in COLOURS]
    return {who: COLOURS[who] for who in known} | {who: next(further) for who in others}


def _text(x: float, y: float, words: str, *, size: int = 11, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{more}>{escape(words)}</text>'


def _dot(x: float, y: float, paint: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.8" fill="{paint}" class="dot" stroke-width="0.8"/>'
    )


def _at(left: float, percent: float) -> float:
    return left + COLUMN * min(percent, SCALE_END) / SCALE_END


def _cell(
    row: Row, bandwidth: float, left: float, top: float, colours: dict[str, str]
) -> Iterator[str]:
    """A bar for ours, a dot for each peer, the figure beside them."""
    kind = "lost" if row.loses else "ours"
    middle = top + ROW / 2
    if "ours" in row.times:
        width = _at(0, shown(row, "ours", bandwidth))
        yield (
            f'<rect x="{left:.1f}" y="{top + 5:.1f}" width="{width:.1f}" height="{ROW - 10}" '
            f'class="{kind}"/>'
        )
    for who, paint in colours.items():
        if who in row.times:
            x = _at(left, shown(row, who, bandwidth))
            yield _dot(x, middle, paint)
    fill = ' class="lost" font-weight="bold"' if row.loses else ""
    yield _text(left + COLUMN + 6, middle + 4, figure(row, bandwidth), size=10, more=fill)


def _panel(panel: Panel, record: Record, top: float, colours: dict[str, str]) -> Iterator[str]:
    yield _text(MARGIN, top + 16, panel.title, size=13, more=' font-weight="bold"')
    beside = MARGIN + 8 + 7.6 * len(panel.title)
    yield _text(beside, top + 16, f"{panel.unit}; more is better", size=10)
    first, bottom = top + TITLE, top + TITLE + ROW * len(panel.shapes)
    for i, shape in enumerate(panel.shapes):
        y = first + ROW * i + ROW / 2 + 4
        yield _text(MARGIN + LABEL - 10, y, shape, size=10, more=' text-anchor="end"')
    for column, dtype in enumerate(panel.dtypes):
        left = MARGIN + LABEL + column * (COLUMN + GAP)
        yield _text(left, first - 8, dtype, size=10)
        for percent in (0, 50, 100):
            x = _at(left, percent)
            yield (
                f'<path d="M{x:.1f} {first:.1f}V{bottom:.1f}" class="grid" '
                f'stroke-width="{0.9 if percent == 100 else 0.3}"/>'
            )
            if percent:
                yield _text(x, first - 8, f"{percent}", size=8, more=' text-anchor="middle"')
        for i, shape in enumerate(panel.shapes):
            row = panel.cells.get((shape, dtype))
            if row:
                yield from _cell(row, record.bandwidth(row), left, first + ROW * i, colours)


def _legend(record: Record, family: str, colours: dict[str, str]) -> Iterator[str]:
    about = record.about[0]
    heading = f"{family}: {about['gpu']}, torch {about['torch']}, fusedops {about['fusedops']}"
    yield _text(MARGIN, 20, heading, size=14)
    x = float(MARGIN)
    for who, kind in {"ours": "ours", "ours, behind a peer": "lost"}.items():
        yield f'<rect x="{x:.1f}" y="48" width="14" height="9" class="{kind}"/>'
        yield _text(x + 19, 57, who)
        x += 32 + 6.4 * len(who)
    for who, paint in colours.items():
        yield _dot(x + 5, 52.5, paint)
        yield _text(x + 13, 57, who)
        x += 28 + 6.4 * len(who)


def draw(record: Record, family: str) -> str:
    """The SVG of one family."""
    part = record.of_family(family)
    drawn = panels(part.rows, one_unit=True)
    columns = max(len(panel.dtypes) for panel in drawn)
    width = MARGIN + max(LABEL + columns * (COLUMN + GAP), LEGEND_WIDTH) + MARGIN
    height = TOP + sum(panel.height for panel in drawn) + MARGIN
    colours = _colours(part)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif">',
        STYLE,
        f'<rect width="{width}" height="{height}" class="page"/>',
        *_legend(part, family, colours),
    ]
    top = float(TOP)
    for panel in drawn:
        lines.extend(_panel(panel, part, top, colours))
        top += panel.height
    return "\n".join([*lines, "</svg>"]) + "\n"


def beside(source: Path, found: Record) -> list[Path]:
    """Draw every family of the record that is at `source`, beside it: RECORD-FAMILY.svg."""
    drawn = []
    for family in found.families():
        drawn.append(source.with_name(f"{source.stem}-{family}.svg"))
        drawn[-1].write_text(draw(found, family), encoding="utf-8")
    return drawn
