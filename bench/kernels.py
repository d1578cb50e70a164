"""Times the kernels on a GPU beside PyTorch, torch.compile, Liger-Kernel, FlashInfer and QuACK.

    python bench/kernels.py [--family norm softmax] [--quick] [--out OUT.json] [--minutes 9]

Figures are device times: events around graph replays, the median of many, contestants in turn,
random inputs that are not in the L2 cache. Percentages are of the bandwidth of a device-to-device
copy in the same run. A cell that loses to a peer by more than 2 % is marked, and red on a terminal.
Needs torch and an installed fusedops. The peers and their versions are in bench/peers.txt; one that
is not there is noted. A record is written after every cell, so a run that is cut keeps what it has;
--resume goes on from a record. With --caches a later run finds what the peers' compilers made for
the same GPU and torch. Runs of different cells on one GPU that have one --lock measure in turn,
while the others prepare. At the end each family's plot is drawn beside the record.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from families import FAMILIES
from kernelbench import plot, record, terminal
from kernelbench.about import about
from kernelbench.case import Choice
from kernelbench.peers import keep_caches
from kernelbench.run import Run
from kernelbench.timing import Cache, large_copy_bandwidth, turn

import fusedops


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--op", nargs="+", default=[], help="these operators alone")
    parser.add_argument("--dtype", nargs="+", default=[], help="e.g. float32 bfloat16")
    parser.add_argument("--shape", nargs="+", default=[], help="e.g. 8192x4096")
    parser.add_argument("--quick", action="store_true", help="two shapes an operator, few samples")
    parser.add_argument("--samples", type=int, help="of a contestant (default: 40; quick: 15)")
    parser.add_argument("--minutes", type=float, default=1e6, help="end before this, in order")
    parser.add_argument(
        *("--workers", "-j"),
        type=int,
        default=max(1, (os.cpu_count() or 2) - 2),
        help="processes that compile peers ahead; 0: each is compiled where it is timed",
    )
    parser.add_argument("--caches", type=Path, help="a folder that keeps what peers compile")
    parser.add_argument("--lock", type=Path, help="runs with this file measure in turn on one GPU")
    parser.add_argument("--out", type=Path, default=Path("kernels.json"), help="the record")
    parser.add_argument("--resume", type=Path, help="a record: its cells are kept, not timed again")
    parser.add_argument("--behind", type=Path, help="a record: the cells alone that it loses")
    parser.add_argument("--host", action="store_true", help="what calls cost the host, no cells")
    parser.add_argument("--wheel", type=Path, help="the installed wheel, for its sha256")
    parser.add_argument("--colour", action="store_true", help="red even if this is no terminal")
    return parser.parse_args()


def begun(options: argparse.Namespace, deadline: float, lock: Path) -> Run:
    """The run, with the copy's bandwidth measured."""
    samples = options.samples or (15 if options.quick else 40)
    cache = Cache()
    with turn(lock):
        bandwidth = large_copy_bandwidth(samples, cache)
    facts = about(options.wheel, samples=samples, copy_bytes_per_second=bandwidth)
    ops, dtypes, shapes = map(frozenset, (options.op, options.dtype, options.shape))
    print(
        f"{facts['gpu']}, torch {facts['torch']}, fusedops {facts['fusedops']},"
        f" copy {facts['copy_bytes_per_second'] / 1e12:.3f} TB/s\n{terminal.LEGEND}",
        flush=True,
    )
    return Run(
        choice=Choice(ops, dtypes, shapes, options.quick),
        samples=samples,
        workers=options.workers,
        out=options.out,
        resumed=record.read(options.resume) if options.resume else record.Record([]),
        behind=record.read(options.behind).lost if options.behind else None,
        host_alone=options.host,
        found=record.Record([facts]),
        deadline=deadline,
        colour=options.colour or sys.stdout.isatty(),
        cache=cache,
        lock=lock,
    )


@torch.no_grad()
def main() -> int:
    options = parsed()
    deadline = time.monotonic() + 60 * options.minutes
    if not torch.cuda.is_available():
        print("bench kernels: no GPU that torch can use", file=sys.stderr)
        return 1
    if not fusedops.status().native:
        print(f"bench kernels: {fusedops.status().reason}", file=sys.stderr)
        return 1
    if options.caches:
        keep_caches(options.caches)
    with tempfile.TemporaryDirectory() as folder:
        run = begun(options, deadline, options.lock or Path(folder) / "gpu")
        run.families([FAMILIES[name] for name in options.family])
    print(*terminal.summary(run.found), sep="\n")
    print("written:", options.out, *plot.beside(options.out, record.read(options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
