"""Runs the operators on modelled GPUs: `nox -s emulate [-- FAMILY… --model MODEL… --seeds N]`.

The kernels are compiled for the CPU (csrc/platform/cpu), and the smoke cases of the families run on
them at small and awkward shapes. docs/emulation.md says what a model is. The exit status is 1 if a
result was wrong or a fault was found.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "pkg"), str(HERE.parent)]

import torch  # noqa: E402
from model_library import MODELS, ROOT, Library, build, environment  # noqa: E402

from checkout import python_path  # noqa: E402
from fusedops.registry import families  # noqa: E402
from torchwheel_runtime.errors import TorchwheelError, UsageError  # noqa: E402
from torchwheel_runtime.os_errors import explain  # noqa: E402
from torchwheel_runtime.text import nearest, quote  # noqa: E402

DEFAULT = ("sm_90", "gfx90a")
"""One GPU with warps of 32, tensor cores and clusters, and one with wavefronts of 64."""
SMOKE = ROOT / "tests" / "smoke"
QUICK = (
    f"{SMOKE}/test_values.py::test_values_on_the_cpu",
    f"{SMOKE}/test_gradients.py::test_gradients_on_the_cpu",
    f"{SMOKE}/test_attention.py::test_a_prompt_and_steps",
    f"{SMOKE}/test_attention.py::test_caches_that_a_few_blocks_share",
    f"{SMOKE}/test_dequantize.py",
    f"{SMOKE}/test_gemm.py::test_activations_of_few_rows",
    f"{SMOKE}/test_gemm.py::test_int8_weights",
    f"{SMOKE}/test_gemm.py::test_one_element_of_x_picks_a_row_of_the_weight",
    f"{SMOKE}/test_outputs.py::test_results_go_to_the_callers_tensors",
    f"{SMOKE}/test_outputs.py::test_a_result_may_replace_an_argument",
    f"{SMOKE}/test_decode_step.py::test_a_step_allocates_nothing",
    f"{SMOKE}/test_errors.py",
    *(f"{SMOKE}/test_{name}.py::test_wrong_arguments" for name in ("attention", "gated", "gemm")),
    *(f"{SMOKE}/test_{name}.py::test_wrong_arguments" for name in ("layout", "norm", "residual")),
    *(f"{SMOKE}/test_{name}.py::test_wrong_arguments" for name in ("rotary", "softmax")),
    f"{HERE}/emulated_shapes.py",
)
"""What every seed runs."""
WHOLE = (
    *(f"{SMOKE}/test_{name}.py" for name in ("values", "gradients", "attention", "gemm")),
    *(f"{SMOKE}/test_{name}.py" for name in ("norm", "softmax", "rotary", "layout")),
    *(f"{SMOKE}/test_{name}.py" for name in ("dequantize", "residual", "gated", "errors")),
    f"{HERE}/emulated_shapes.py",
)
"""What `nox -s emulate -- all` runs, on every model."""
MODULES = {"_C": "aten", "dlpack": "dlpack"}
"""The extension modules, and their bindings."""
ENTRY_POINTS = (f"{HERE}/emulated_entry_points.py",)
"""What `--entry-points` runs, with each extension module in turn."""


def pytest_command(tests: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """Tests that run in a process with a library: `environment` has its variables."""
    plugin = ("-p", "emulation_plugin", "-p", "no:cacheprovider")
    return [sys.executable, "-m", "pytest", *plugin, "-m", "", *tests, *options]


def variables(library: Path, seed: int, module: Path | None = None) -> dict[str, str]:
    """The variables of such a process; `module` is what ENTRY_POINTS is about."""
    paths = [python_path(), str(HERE), str(SMOKE), os.environ.get("PYTHONPATH", "")]
    return {
        **environment(library, seed, module),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


@dataclasses.dataclass(frozen=True)
class Ran:
    """A run of tests with a library.

    Attributes:
        counts: seconds, outcomes and launches; none if pytest ended without them.
        kernels: those that were launched, by their offsets in the library.
        faults: the faults that were found.
        problem: how pytest ended, if it has no counts.
    """

    counts: dict[str, int]
    kernels: Sequence[int] = ()
    faults: "Sequence[Fault]" = ()
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Fault:
    """What one or more tests found.

    Attributes:
        says: the message of the first of them.
        tests: their names.
    """

    says: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        tests = f"{len(self.tests)} tests" if len(self.tests) > 1 else "1 test"
        first = self.says.partition("\n")[0]
        says = first.partition(REFUSED)[2] or first
        return f"FAULT, in {tests}: {says}\n  first in {self.tests[0]}"


REFUSED = "the GPU refused the kernel: "
_NUMBER = re.compile(r"(?<![:.\d])\d[\d.]*(?:e[+-]?\d+)?")
"""A number that differs from test to test, as a block's; a line of a file is another place."""


def faults_of(failures: Sequence[dict[str, str]]) -> list[Fault]:
    """The faults behind failed tests: those that say the same but for numbers are one.

    A model's fault is at a place of the device code, any other at the line that raised.
    """
    found: dict[str, list[dict[str, str]]] = {}
    for one in failures:
        first = one["says"].partition("\n")[0].replace(f"'{one['test']}'", "")
        model = first.partition(REFUSED)[2]
        key = model or f"{one['place']} {first}"
        found.setdefault(_NUMBER.sub("#", key), []).append(one)
    return [Fault(same[0]["says"], tuple(one["test"] for one in same)) for same in found.values()]


def run_tests(
    library: Path,
    seed: int,
    tests: Sequence[str],
    options: Sequence[str],
    *,
    module: Path | None = None,
    debug: bool = False,
    seconds: float | None = None,
) -> Ran:
    """Runs tests with a library; with `debug`, pytest's own report is printed."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="emulate-") as folder:
        file = Path(folder, "counts.json")
        command = pytest_command(tests, (*options, "--tb=short", f"--counts={file}"))
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=variables(library, seed, module),
                stdout=None if debug else subprocess.PIPE,
                stderr=None if debug else subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran({}, problem=f"pytest did not end in {seconds:g} s")
        if not file.exists():
            *_, last = ["nothing was printed", *(done.stdout or "").strip().splitlines()]
            return Ran({}, problem=f"pytest ended with status {done.returncode}: {last}")
        counts = json.loads(file.read_text(encoding="utf-8"))
    faults, kernels = faults_of(counts.pop("failures")), counts.pop("kernels")
    return Ran({"seconds": round(time.monotonic() - begun), **counts}, kernels, faults)


_KERNEL = re.compile(r"([0-9a-f]+) \w (?:void )?fusedops::(?:\w+::)*?(\w+::\w+_kernel)[<(][^{]*")


def kernels_of(library: Path) -> dict[int, str]:
    """The names of a library's kernels, without their template arguments, by their offsets."""
    command = ["nm", "--demangle", "--defined-only", str(library)]
    symbols = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
    found = map(_KERNEL.fullmatch, symbols.splitlines())
    return {int(match[1], 16): match[2] for match in found if match}


def main(arguments: Sequence[str]) -> int:
    """Builds and runs as the arguments say."""
    options = _parser().parse_args(arguments)
    return guard("emulate", lambda: _emulate(options, arguments), debug=options.debug)


def _emulate(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    if options.bits and len(options.model or ()) != 1:
        found = ", ".join(options.model or ()) or "none"
        raise UsageError(f"--bits: expected one --model, whose results it holds, found {found}")
    if whole := options.family == ["all"]:
        options.family = []
    check_names("family", options.family, [*families(), "all"])
    check_names("model", options.model or (), MODELS)
    failed = False
    kernels, run = set[str](), set[str]()
    models: dict[str, Any] = {}
    record = {**about("emulate", arguments, options.jobs), "models": models}
    for model in options.model or (MODELS if whole else DEFAULT):
        begun = time.monotonic()
        library = build(Library(model, options.family), options.jobs, _say)
        names = MODULES if options.entry_points else ()
        modules = {name: build_module(name, model, options.family, options.jobs) for name in names}
        built = time.monotonic()
        names_of_kernels = kernels_of(library)
        kernels |= set(names_of_kernels.values())
        if options.bits:
            command = [sys.executable, str(HERE / "emulated_bits_of_model.py"), options.bits]
            done = subprocess.run(command, cwd=ROOT, env=variables(library, 0), check=False)
            failed |= done.returncode != 0
            continue
        models[model] = {"built_seconds": round(built - begun), "seeds": {}}
        for seed in range(options.seed, options.seed + options.seeds):
            print(f"{model}, seed {seed}", flush=True)
            chosen = [word for family in options.family for word in ("--family", family)]
            runs = {"": (library, None, WHOLE if whole else QUICK)}
            if modules:
                runs = {name: (*given, ENTRY_POINTS) for name, given in modules.items()}
            for name, (used, module, tests) in runs.items():
                more = (*chosen, "-n", str(options.jobs))
                ran = run_tests(used, seed, tests, more, module=module, debug=options.debug)
                if ran.problem:
                    raise TorchwheelError(f"{ran.problem}; {SHOW.format('emulate')}")
                print(*([f"  {name}"] if name else []), _report(ran), sep="\n", flush=True)
                failed |= bool(ran.faults)
                run |= {names_of_kernels.get(one, "") for one in ran.kernels}
                models[model]["seeds"][f"{seed} {name}".rstrip()] = ran.counts
            if options.record:  # after each seed: a night may end early
                write_record(options.record, record)
        print(
            f"{model}: built in {built - begun:.0f} s, ran in {time.monotonic() - built:.0f} s",
            flush=True,
        )
    # A family's library has kernels of other families too, and one model does not run all kernels.
    every = not (options.family or options.model or options.entry_points)
    if every and kernels - run:
        print("NEVER RUN:", ", ".join(sorted(kernels - run)))
        failed = True
    return int(failed)


def build_module(
    name: str, model: str, families: Sequence[str], jobs: int = 2
) -> tuple[Path, Path]:
    """Builds an extension module; gives the library that has its kernels, and the module."""
    module = build(Library(model, families, MODULES[name]), jobs, _say)
    return (build(Library(model, families), jobs, _say) if name == "dlpack" else module), module


SHOW = "`nox -s {} -- --debug …` shows all of it"


def guard(session: str, run: Callable[[], int], *, debug: bool) -> int:
    """Runs a session; an error of its own is one line, and a traceback with `debug` alone."""
    try:
        return run()
    except KeyboardInterrupt:
        print(f"{session}: stopped", file=sys.stderr)
        return 1
    except TorchwheelError as error:
        if debug:
            raise
        print(f"{session}: {error}", file=sys.stderr)
        return error.status
    except Exception as error:  # a fault of this tool
        if debug:
            raise
        print(f"{session}: {explain(error)}; {SHOW.format(session)}", file=sys.stderr)
        return 1


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises a UsageError for a name that is none, with the one that may be meant."""
    for name in names:
        if name not in known:
            raise UsageError(f"no {kind} {quote(name)}; {nearest(name, known)}")


def _report(ran: Ran) -> str:
    """The outcomes, then each fault once, with the first of the tests that found it."""
    outcomes = ("passed", "failed", "error", "skipped")
    counts = [f"{ran.counts[one]} {one}" for one in outcomes if ran.counts[one]]
    told = f"  {', '.join(counts) or 'no test'} in {ran.counts['seconds']} s"
    return "\n".join([told, *map(str, ran.faults)])


def about(session: str, arguments: Sequence[str], jobs: int) -> dict[str, Any]:
    """The beginning of a record: the command, its day, and what decides its results."""
    compiler = subprocess.run(["g++", "-dumpfullversion"], check=True, capture_output=True)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": f"nox -s {session} -- {' '.join(arguments)}".rstrip(" -"),
        "processes": jobs,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": f"g++ {compiler.stdout.decode().strip()}",
    }


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Writes a record as JSON."""
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="emulate", description=__doc__)
    parser.add_argument(
        "family", nargs="*", help="families of operators; all of them if none; `all`: all tests too"
    )
    parser.add_argument(
        "--model", action="append", metavar="MODEL", help=f"GPUs to model: {', '.join(MODELS)}"
    )
    parser.add_argument("--seeds", type=int, default=1, help="orders of threads to try")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--record", type=Path, help="write what was run as JSON")
    parser.add_argument(
        "--entry-points", action="store_true", help="run the entry points of the extension modules"
    )
    parser.add_argument("--bits", help="write one model's results to a file, and check none")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--debug", action="store_true", help="show pytest's report and tracebacks")
    return parser


def _say(line: str) -> None:
    if not line.startswith("["):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
