"""Plants faults in the device code and sees the emulation find them.

`nox -s planted [-- NAME…]` plants every fault of planted.yaml, or those whose names match
a pattern. Only the files that a fault reaches are compiled again.
"""

import argparse
import dataclasses
import fnmatch
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from emulate import (
    HERE,
    REFUSED,
    ROOT,
    SMOKE,
    about,
    check_names,
    guard,
    run_tests,
    write_record,
)
from model_library import Library, build, build_with

from torchwheel_runtime.errors import TorchwheelError

PLANTED = HERE / "planted.yaml"
TESTS = {
    "attention": (f"{SMOKE}/test_attention.py", "-k", "a_prompt_and_steps or few_blocks"),
    "dequantize": (f"{SMOKE}/test_dequantize.py",),
    "gemm": (
        *(f"{HERE}/emulated_shapes.py::test_sums_of_a_cluster", f"{SMOKE}/test_gemm.py"),
        *("-k", "few_rows or int8 or one_element or cluster"),
    ),
    "layout": (f"{SMOKE}/test_layout.py", f"{HERE}/emulated_shapes.py", "-k", "slice or strides"),
    "softmax": (f"{SMOKE}/test_softmax.py", f"{SMOKE}/test_values.py"),
}
"""The tests of a family that has its own; the others run its cases."""
CASES = (
    f"{SMOKE}/test_values.py::test_values_on_the_cpu",
    f"{SMOKE}/test_values.py::test_strides_and_alignment",
    f"{SMOKE}/test_gradients.py::test_gradients_on_the_cpu",
    f"{SMOKE}/test_gradients.py::test_gradient_of_views",
    f"{HERE}/emulated_shapes.py",
)
SECONDS = 900


@dataclasses.dataclass(frozen=True)
class Planted:
    """A fault.

    Attributes:
        name: what the report calls it.
        breaks: what is wrong then, in one sentence.
        file: the file that is changed, relative to the root of the tree.
        old: the text that is replaced; the file has it exactly once.
        new: the text that takes its place.
        model: the GPU that shows it.
        family: the operators that are run.
        says: a pattern of what the first failing test must print.
    """

    name: str
    breaks: str
    file: str
    old: str
    new: str
    model: str
    family: str
    says: str


def load(path: Path = PLANTED) -> list[Planted]:
    """Reads the faults, in the order of the file."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [Planted(name=name, **fields) for name, fields in found.items()]


def misplaced(fault: Planted, root: Path = ROOT) -> str | None:
    """Says why a fault cannot be planted; None if it can."""
    path = root / fault.file
    count = path.read_text(encoding="utf-8").count(fault.old) if path.is_file() else 0
    return None if count == 1 else f"{fault.name}: {fault.file} has its place {count} times"


def plant(fault: Planted, folder: Path) -> Path:
    """Builds the library with the fault, in `folder`; returns it."""
    changed = folder / Path(fault.file).relative_to("csrc")
    changed.parent.mkdir(parents=True, exist_ok=True)
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    changed.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return build_with(Library(fault.model, (fault.family,)), folder)


def verdict(fault: Planted, folder: Path) -> tuple[bool, str]:
    """Plants a fault; returns whether it was found, and the sentence that found it.

    The family's tests run until one fails.
    """
    library, tests = plant(fault, folder), TESTS.get(fault.family, CASES)
    ran = run_tests(library, 1, tests, ("-x", "--family", fault.family), seconds=SECONDS)
    lines = [line for found in ran.faults for line in found.says.splitlines()]
    said = next((line for line in lines if re.search(fault.says, line)), None)
    if said is not None:
        return True, said.partition(REFUSED)[2] or said
    return False, ran.problem or next(iter(lines), "no test failed")


def main(arguments: Sequence[str]) -> int:
    """Plants the faults that are asked for, and prints a line for each."""
    parser = argparse.ArgumentParser(prog="planted", description=__doc__)
    parser.add_argument("pattern", nargs="*", default=["*"], help="names of faults")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="faults side by side")
    parser.add_argument("--record", type=Path, help="write what was found as JSON")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    options = parser.parse_args(arguments)
    return guard("planted", lambda: _planted(options, arguments), debug=options.debug)


def _planted(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    begun = time.monotonic()
    record = about("planted", arguments, options.jobs)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        verdicts = plant_all(options.pattern, options.jobs, Path(folder))
    missed = [name for name, (found, _) in verdicts.items() if not found]
    seconds = time.monotonic() - begun
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} found in {seconds:.0f} s")
    if options.record:
        record |= {"seconds": round(seconds), "planted": len(verdicts), "missed": missed}
        said = {name: says for name, (_, says) in verdicts.items()}
        write_record(options.record, {**record, "found_by": said})
    return int(bool(missed))


def plant_all(patterns: Sequence[str], jobs: int, folder: Path) -> dict[str, tuple[bool, str]]:
    """Plants the faults whose names match; returns the verdict on each.

    Raises:
        UsageError: a pattern matches no name.
        TorchwheelError: the place of a fault is lost.
    """
    faults = {one.name: one for one in load()}
    nothing = [pattern for pattern in patterns if not fnmatch.filter(faults, pattern)]
    check_names("fault", nothing, faults)
    matching = {name for pattern in patterns for name in fnmatch.filter(faults, pattern)}
    chosen = [one for name, one in faults.items() if name in matching]
    if lost := [reason for one in chosen if (reason := misplaced(one))]:
        raise TorchwheelError(*lost)
    for model, family in sorted({(one.model, one.family) for one in chosen}):
        build(Library(model, (family,)), jobs)
    verdicts = {}
    with ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda one: verdict(one, folder / one.name), chosen)
        for one, (found, said) in zip(chosen, results, strict=True):
            verdicts[one.name] = found, said
            print(f"{'found' if found else 'MISSED'}  {one.name}: {said}", flush=True)
    return verdicts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
