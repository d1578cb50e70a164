"""Plants faults in the device code and sees the emulation find them.

`nox -s planted [-- NAME…]` plants every fault of planted.yaml, or those whose names match
a pattern. Only the files that a fault reaches are compiled again.
"""

import argparse
import dataclasses
import fnmatch
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from emulate import HERE, ROOT, SMOKE, about, pytest_command, variables, write_record
from model_library import Library, build, build_with

PLANTED = HERE / "planted.yaml"
TESTS = {
    "attention": (f"{SMOKE}/test_attention.py", "-k", "a_prompt_and_steps"),
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


def run_tests(fault: Planted, library: Path, seed: int = 1) -> tuple[int, str]:
    """Runs the family's tests until one fails; returns pytest's exit status and its output."""
    chosen = TESTS.get(fault.family, CASES)
    command = pytest_command(chosen, ("-x", "--family", fault.family))
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=variables(library, seed),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def verdict(fault: Planted, folder: Path) -> tuple[bool, str]:
    """Plants a fault; returns whether it was found, and the sentence that found it."""
    status, output = run_tests(fault, plant(fault, folder))
    lines = [line[1:].strip() for line in output.splitlines() if line.startswith("E  ")]
    said = next((line for line in lines if re.search(fault.says, line)), None)
    if status == 1 and said:
        return True, said.partition("refused the kernel: ")[2] or said
    last = (lines or output.strip().splitlines() or ["nothing"])[-1 if not lines else 0]
    return False, f"pytest exit status {status}: {last}"


def main(arguments: Sequence[str]) -> int:
    """Plants the faults that are asked for, and prints a line for each."""
    parser = argparse.ArgumentParser(prog="planted", description=__doc__)
    parser.add_argument("pattern", nargs="*", default=["*"], help="names of faults")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="faults side by side")
    parser.add_argument("--record", type=Path, help="write what was found as JSON")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    record = about("planted", arguments, options.jobs)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        verdicts = plant_all(options.pattern, options.jobs, Path(folder))
    missed = [name for name, (found, _) in verdicts.items() if not found]
    seconds = time.monotonic() - begun
    if verdicts:
        print(f"{len(verdicts) - len(missed)} of {len(verdicts)} found in {seconds:.0f} s")
    if options.record:
        record |= {"seconds": round(seconds), "planted": len(verdicts), "missed": missed}
        said = {name: says for name, (_, says) in verdicts.items()}
        write_record(options.record, {**record, "found_by": said})
    return int(bool(missed) or not verdicts)


def plant_all(patterns: Sequence[str], jobs: int, folder: Path) -> dict[str, tuple[bool, str]]:
    """Plants the faults whose names match; returns the verdict on each, none if one is lost."""
    chosen = [
        one for one in load() if any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)
    ]
    lost = [reason for one in chosen if (reason := misplaced(one))]
    if lost or not chosen:
        print("\n".join(lost or ["no fault has such a name"]))
        return {}
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
