"""Breaks guarded places one at a time, and reports whether the tests notice.

`nox -s mutate` breaks every place of mutations.yaml, `nox -s mutate -- 'gate-*'` those whose names
match a pattern. The exit status is 1 if a broken place goes unnoticed.

The work happens in copies of the tree, so the checkout stays as it is. All named tests run once on
an unbroken copy first: a test that fails anyway notices nothing.
"""

import argparse
import dataclasses
import fnmatch
import functools
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from checkout import python_path

ROOT = Path(__file__).parents[1]
MUTATIONS = Path(__file__).with_name("mutations.yaml")
SECONDS = 300
"""A test run that takes longer hangs, which somebody would notice too."""
PASSED, FAILED = 0, 1  # exit statuses of pytest


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A guarded place, and how it is broken.

    Attributes:
        name: what the report calls it.
        breaks: the harm it does, in one sentence.
        file: the file that is changed, relative to the root of the tree.
        old: the text that is replaced; the file has it exactly once.
        new: the text that takes its place.
        tests: the arguments of pytest that select the tests that should fail.
        nightly: whether only tests of the nightly run notice.
    """

    name: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    nightly: bool = False


def load(path: Path = MUTATIONS) -> list[Mutation]:
    """Reads the mutations, in the order of the file."""
    return [
        Mutation(**{**fields, "name": name, "tests": tuple(fields["tests"])})
        for name, fields in yaml.safe_load(path.read_text(encoding="utf-8")).items()
    ]


def misplaced(mutation: Mutation, root: Path) -> str | None:
    """Says why a mutation cannot be made in the tree `root`; None if it can."""
    path = root / mutation.file
    count = path.read_text(encoding="utf-8").count(mutation.old) if path.is_file() else 0
    if count == 1:
        return None
    return f"{mutation.file}: expected {mutation.old!r} once, found it {count} times"


def copy_tree(target: Path) -> Path:
    """Copies the files of the checkout that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    for name in filter(None, os.fsdecode(listed).split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target


def run_tests(
    tests: Sequence[str], root: Path, *, nightly: bool = False, seconds: int | None = None
) -> tuple[int | None, str]:
    """Runs pytest in the tree `root`; returns its exit status, None if it hangs, and its output."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    command += ["-m", ""] if nightly else []
    # Tests start Python processes too, and those must not import the installed checkout.
    env = {**os.environ, "PYTHONPATH": python_path(root)}
    try:
        done = subprocess.run(
            command, cwd=root, env=env, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def write(path: Path, text: str) -> None:
    """Replaces a source file and removes the byte code that Python may take for up to date."""
    path.write_text(text, encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def verdict(mutation: Mutation, root: Path) -> str:
    """Breaks a place in the tree `root`, runs its tests and restores it; returns the verdict."""
    path = root / mutation.file
    text = path.read_text(encoding="utf-8")
    write(path, text.replace(mutation.old, mutation.new))
    try:
        status, output = run_tests(mutation.tests, root, nightly=mutation.nightly, seconds=SECONDS)
    finally:
        write(path, text)
    if status in (FAILED, None):
        return "caught"
    last = (output.strip().splitlines() or ["no output"])[-1]
    return "MISSED" if status == PASSED else f"MISSED (pytest exit status {status}: {last})"


def main(arguments: Sequence[str]) -> int:
    """Runs the mutations that are asked for and prints a line for each."""
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("pattern", nargs="*", default=["*"], help="names of mutations")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="test runs side by side")
    options = parser.parse_args(arguments)
    chosen = [
        one for one in load() if any(fnmatch.fnmatch(one.name, text) for text in options.pattern)
    ]
    faults = [f"{one.name}: {why}" for one in chosen if (why := misplaced(one, ROOT))]
    if faults or not chosen:
        print("\n".join(faults or ["no mutation has such a name"]))
        return 1
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="mutate-") as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for job in range(options.jobs):
            trees.put(copy_tree(Path(folder, str(job))))

        def in_a_tree(work, subject):
            tree = trees.get()
            try:
                return work(subject, tree)
            finally:
                trees.put(tree)

        tests = list(dict.fromkeys(t for one in chosen if not one.nightly for t in one.tests))
        parts = [tests[job :: options.jobs] for job in range(min(options.jobs, len(tests)))]
        runs = [pool.submit(in_a_tree, run_tests, part) for part in parts]
        at_night = {test for one in chosen if one.nightly for test in one.tests}
        if at_night:
            run_all = functools.partial(run_tests, nightly=True)
            runs.append(pool.submit(in_a_tree, run_all, sorted(at_night)))
        for status, output in (run.result() for run in runs):
            if status != PASSED:
                print(f"{output}\nthe tests fail on the unbroken tree")
                return 1
        missed = 0
        verdicts = pool.map(lambda one: in_a_tree(verdict, one), chosen)
        for one, found in zip(chosen, verdicts, strict=True):
            missed += found != "caught"
            print(f"{found}  {one.name}: {one.breaks}", flush=True)
    seconds = time.monotonic() - begun
    print(f"{len(chosen) - missed} of {len(chosen)} caught in {seconds:.0f} s")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
