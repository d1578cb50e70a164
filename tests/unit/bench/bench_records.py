"""A record as a run would leave it."""

from kernelbench.record import HostTime, Record, Row, Timing

ABOUT = {
    "gpu": "NVIDIA H200",
    "torch": "2.11.0+cu130",
    "fusedops": "1.0.0+cu130",
    "copy_bytes_per_second": 4.0e12,
}
MIB = 1 << 20


def timing(us: float, peak_mb: float = 64.0) -> Timing:
    return Timing(us, us - 0.125, us + 0.125, peak_mb)


def row(**changes) -> Row:
    """128 MiB in 34 us: 99 per cent of the copy."""
    facts = {
        "family": "norm",
        "op": "rms_norm",
        "way": "",
        "dtype": "float16",
        "shape": "8192x4096",
        "bytes_moved": 128 * MIB,
        "in_time": False,
        "times": {
            "copy": timing(34.5),
            "ours": timing(34.0),
            "eager": timing(50.0),
            "compile": timing(35.0),
            "flashinfer": timing(52.0),
        },
        "failures": {"liger": "ModuleNotFoundError: No module named 'liger_kernel'"},
    }
    return Row(**(facts | changes))


def small(**changes) -> Row:
    times = {"ours": timing(2.125, 0.5), "eager": timing(10.0, 0.5), "flashinfer": timing(4.9)}
    facts = {"shape": "32x4096", "bytes_moved": 512 * 1024, "in_time": True, "times": times}
    return row(**(facts | changes))


def lost(**changes) -> Row:
    return row(
        **({"times": {"ours": timing(40.0), "eager": timing(35.0)}, "failures": {}} | changes)
    )


HOST = HostTime("norm", "rms_norm", "", {"ours": 8.1, "eager": 9.0, "gelu": 6.9})


def record(*rows: Row, about: dict | None = None) -> Record:
    return Record([ABOUT | (about or {})], list(rows) or [row(), small(), lost(op="x")], [HOST])
