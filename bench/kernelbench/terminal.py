"""The printed table: 80 columns, a line a cell, by family and operator; the summary comes last."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kernelbench.record import YARDSTICKS, HostTime, Record, Row

DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "b16"}
SHORT = {
    "max-autotune": "tuned",
    "compile": "comp",
    "flashinfer": "finf",
    "flashinfer-tc": "fi-tc",
    "flashinfer-one": "fi-1",
    "torch.ops.gelu": "ops",
}
MOST_PEERS = 5
MOST_LOST = 40
LARGE_BYTES = 1 << 26
WIDTH = 80
RED, PLAIN = "\033[31m", "\033[0m"

LEGEND = """\
Per cent of the bandwidth of a 1 GiB device copy; microseconds where a call is
little more than a launch. own: of a copy of as many bytes. lead: speed over the
best peer's; ! where it loses by more than 2 %. MB: peak memory of a call."""


def title(entry: Row | HostTime) -> str:
    """The operator and the way of calling it."""
    return f"{entry.op} {entry.way}".strip()


def peers_of(row: Row) -> list[str]:
    """Everyone who ran or was to run beside us, in order."""
    names = [who for who in (*row.times, *row.failures) if who not in YARDSTICKS]
    return list(dict.fromkeys(names))[:MOST_PEERS]


def head(family: str, row: Row, peers: Sequence[str]) -> str:
    """The lines over an operator's cells."""
    others = "".join(f"{SHORT.get(who, who)[:5]:>6}" for who in peers)
    return (
        f"{family}: {title(row)}\n{'':<20}{'us':>8}{'%':>4}{'own':>4}{'lead':>5}{'MB':>7}{others}"
    )


def number(value: float, width: int) -> str:
    """As many digits as there is room for, a blank before them."""
    fitting = (f"{value:.{digits}f}" for digits in (2, 1, 0))
    return f"{next((text for text in fitting if len(text) < width), '++'):>{width}}"


def _figure(row: Row, who: str, bandwidth: float) -> str:
    if who not in row.times:
        return f"{'-':>6}"
    if row.in_time:
        return number(row.times[who].median_us, 6)
    return f"{row.percent(who, bandwidth):>6.0f}"


def _ours(row: Row, bandwidth: float) -> str:
    mark = "!" if row.loses else " "
    if "ours" not in row.times:
        return f"{'failed':>8}{'':13}{mark}{'':6}"
    timing = row.times["ours"]
    share = "" if row.in_time else f"{row.percent('ours', bandwidth):.0f}"
    own = "" if row.of_its_copy is None else f"{row.of_its_copy:.0f}"
    lead = f"{'':5}" if row.lead is None else number(row.lead, 5)
    return f"{number(timing.median_us, 8)}{share:>4}{own:>4}{lead}{mark}{number(timing.peak_mb, 6)}"


def line(row: Row, bandwidth: float, peers: Sequence[str], colour: bool) -> str:
    """A cell."""
    label = f" {DTYPES.get(row.dtype, row.dtype)} {row.shape:<15}"
    others = "".join(_figure(row, who, bandwidth) for who in peers)
    text = f"{label}{_ours(row, bandwidth)}{others}".rstrip()
    return f"{RED}{text}{PLAIN}" if colour and row.loses else text


def host_table(hosts: Sequence[HostTime]) -> Iterator[str]:
    """What a call costs the host, a line for each operator of a family."""
    names = dict.fromkeys(who for host in hosts for who in host.times_us)
    peers = [who for who in names if who not in {"ours", "gelu"}][: MOST_PEERS - 1]
    others = "".join(f"{SHORT.get(who, who)[:5]:>6}" for who in ("gelu", *peers))
    yield f"{'host us a call, tiny tensors':<34}{'ours':>7}{'x gelu':>7}{others}"
    for host in hosts:
        ratio = "" if host.of_gelu is None else f"{host.of_gelu:.2f}"
        times = "".join(_host_time(host, who) for who in ("gelu", *peers))
        yield f" {title(host):<33}{_host_time(host, 'ours'):>7}{ratio:>7}{times}".rstrip()


def _host_time(host: HostTime, who: str) -> str:
    return f"{host.times_us[who]:>6.1f}" if who in host.times_us else f"{'-':>6}"


def summary(record: Record) -> Iterator[str]:
    """What failed, what was lost, and a line a family."""
    yield from _failures(record)
    lost = sorted((row for row in record.rows if row.loses), key=lambda row: row.lead or 0.0)
    for row in lost[:MOST_LOST]:
        why = row.failures.get("ours") or f"{row.lead or 0.0:.2f} of {row.best_peer}"
        yield f"! {title(row)} {row.dtype} {row.shape}: {why}"[:WIDTH]
    if len(lost) > MOST_LOST:
        yield f"! and {len(lost) - MOST_LOST} more"
    columns = ("cells", "lost", "least %", "least lead", "host x gelu")
    yield f"{'family':<14}" + "".join(f"{column:>12}" for column in columns)
    for family in record.families():
        yield f"{family:<14}" + "".join(f"{text:>12}" for text in _totals(record.of_family(family)))
    yield f"{len(record.rows)} cells, {len(lost)} lost to a peer"


def _totals(part: Record) -> Iterator[str]:
    """Of one family: cells, lost ones; the least share at 64 MiB and more, the least lead."""
    shares = [
        row.percent("ours", part.bandwidth(row))
        for row in part.rows
        if row.bytes_moved >= LARGE_BYTES and not row.in_time and "ours" in row.times
    ]
    leads = [row.lead for row in part.rows if row.lead is not None]
    hosts = [host.of_gelu for host in part.host if host.of_gelu is not None]
    yield str(len(part.rows))
    yield str(sum(row.loses for row in part.rows))
    yield f"{min(shares):.0f}" if shares else ""
    yield f"{min(leads):.2f}" if leads else ""
    yield f"{max(hosts):.2f}" if hosts else ""


def _failures(record: Record) -> Iterator[str]:
    """Why peers have no time: a line for each reason, with the number of cells."""
    reasons = Counter(
        (who, why) for row in record.rows for who, why in row.failures.items() if who != "ours"
    )
    for (who, why), count in reasons.items():
        yield f"{who}, {count} cells: {why}"[: 2 * WIDTH]
