"""Runs the operators on modelled GPUs: `nox -s emulate [-- FAMILY… --model MODEL… --seeds N]`.

The kernels are compiled for the CPU (csrc/platform/cpu), and the smoke cases of the families run on
them at small and awkward shapes. docs/emulation.md says what a model is. The exit status is 1 if a
result was wrong or a fault was found.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "pkg"), str(HERE.parent)]

import torch  # noqa: E402
from model_library import MODELS, ROOT, Library, build, environment  # noqa: E402

from checkout import python_path  # noqa: E402
from fusedops.registry import families  # noqa: E402

DEFAULT = ("sm_90", "gfx90a")
"""One GPU with warps of 32, tensor cores and clusters, and one with wavefronts of 64."""
SMOKE = ROOT / "tests" / "smoke"
QUICK = (
    f"{SMOKE}/test_values.py::test_values_on_the_cpu",
    f"{SMOKE}/test_gradients.py::test_gradients_on_the_cpu",
    f"{SMOKE}/test_attention.py::test_a_prompt_and_steps",
    f"{SMOKE}/test_dequantize.py",
    f"{SMOKE}/test_gemm.py::test_activations_of_few_rows",
    f"{SMOKE}/test_gemm.py::test_int8_weights",
    f"{SMOKE}/test_gemm.py::test_one_element_of_x_picks_a_row_of_the_weight",
    f"{SMOKE}/test_outputs.py::test_results_go_to_the_callers_tensors",
    f"{SMOKE}/test_outputs.py::test_a_result_may_replace_an_argument",
    f"{SMOKE}/test_decode_step.py::test_a_step_allocates_nothing",
    f"{HERE}/emulated_shapes.py",
)
"""What every seed runs."""
WHOLE = (
    *(f"{SMOKE}/test_{name}.py" for name in ("values", "gradients", "attention", "gemm")),
    *(f"{SMOKE}/test_{name}.py" for name in ("norm", "softmax", "rotary", "layout")),
    *(f"{SMOKE}/test_{name}.py" for name in ("dequantize", "residual", "gated")),
    f"{HERE}/emulated_shapes.py",
)
"""What `nox -s emulate -- all` runs, on every model."""


def pytest_command(tests: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """Tests that run in a process with a library: `environment` has its variables."""
    plugin = ("-p", "emulation_plugin", "-p", "no:cacheprovider")
    return [sys.executable, "-m", "pytest", *plugin, "--tb=short", "-m", "", *tests, *options]


def variables(library: Path, seed: int) -> dict[str, str]:
    """The variables of such a process."""
    paths = [python_path(), str(HERE), str(SMOKE), os.environ.get("PYTHONPATH", "")]
    return {**environment(library, seed), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def main(arguments: Sequence[str]) -> int:
    """Builds and runs as the arguments say."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.bits and len(options.model or ()) != 1:
        found = ", ".join(options.model or ()) or "none"
        parser.error(f"--bits: expected one --model, whose results the file holds, found {found}")
    if whole := options.family == ["all"]:
        options.family = []
    unknown = set(options.family) - set(families())
    if unknown:
        print(f"families: expected {', '.join(families())}, found {', '.join(sorted(unknown))}")
        return 2
    failed = False
    models: dict[str, Any] = {}
    record = {**about("emulate", arguments, options.jobs), "models": models}
    for model in options.model or (MODELS if whole else DEFAULT):
        begun = time.monotonic()
        library = build(Library(model, options.family), options.jobs, _say)
        built = time.monotonic()
        if options.bits:
            command = [sys.executable, str(HERE / "emulated_bits_of_model.py"), options.bits]
            done = subprocess.run(command, cwd=ROOT, env=variables(library, 0), check=False)
            failed |= done.returncode != 0
            continue
        models[model] = {"built_seconds": round(built - begun), "seeds": {}}
        for seed in range(options.seed, options.seed + options.seeds):
            chosen = [word for family in options.family for word in ("--family", family)]
            print(f"{model}, seed {seed}", flush=True)
            status, counts = _run(
                library, seed, WHOLE if whole else QUICK, (*chosen, "-n", str(options.jobs))
            )
            failed |= status != 0
            models[model]["seeds"][str(seed)] = counts
            if options.record:  # after each seed: a night may end early
                write_record(options.record, record)
        print(
            f"{model}: built in {built - begun:.0f} s, ran in {time.monotonic() - built:.0f} s",
            flush=True,
        )
    return int(failed)


def _run(
    library: Path, seed: int, tests: Sequence[str], options: Sequence[str]
) -> tuple[int, dict[str, int]]:
    """Runs tests with a library; returns pytest's exit status, and seconds and counts."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="emulate-") as folder:
        file = Path(folder, "counts.json")
        command = pytest_command(tests, (*options, f"--counts={file}"))
        done = subprocess.run(command, cwd=ROOT, env=variables(library, seed), check=False)
        counts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return done.returncode, {"seconds": round(time.monotonic() - begun), **counts}


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
    parser.add_argument("--model", action="append", choices=MODELS, help="GPUs to model")
    parser.add_argument("--seeds", type=int, default=1, help="orders of threads to try")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--record", type=Path, help="write what was run as JSON")
    parser.add_argument("--bits", help="write one model's results to a file, and check none")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes side by side")
    return parser


def _say(line: str) -> None:
    if not line.startswith("["):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
