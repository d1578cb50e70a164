"""The steps of an ordinary project's build that run in the container, before and after its own.

Containers import this module: the packages of docker/requirements.txt are present there.
"""

import dataclasses
import json
import os
import platform
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from torchwheel.check.audit import may_borrow
from torchwheel.compilers import gpu_compiler, ninja_program, pretended_gpu
from torchwheel.compilers.compiler_cache import wait_for_writes
from torchwheel.inspect.wheel import open_wheel
from torchwheel.pipeline.inside import CACHE_USE, DIVIDED, PLAN
from torchwheel.smoke import probe_source
from torchwheel.smoke.testing import EnvironmentTorch
from torchwheel.toolkit.toolkit_home import (
    assemble_cuda_home,
    assemble_rocm_home,
    cuda_program,
    set_header_times,
    write_script,
)
from torchwheel_runtime import process
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.builder.variables import SYSROOT, sysroot_flags
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import MalformedError, TorchwheelError, program_error
from torchwheel_runtime.files import write_text
from torchwheel_runtime.inspect.elf import Library, read_library
from torchwheel_runtime.json_files import last_line, parse_json, read_json
from torchwheel_runtime.pip import checked_requirements
from torchwheel_runtime.shards import parse_shard


@dataclasses.dataclass(frozen=True)
class BuildPlaces:
    """Where a build finds what is made for it.

    Attributes:
        environment: the folder of torch and the build requirements.
        toolkit_home: CUDA_HOME, or ROCM_HOME.
        cxx: the C++ compiler, with its launcher.
        ninja: the program that divides the steps.
    """

    environment: Path
    toolkit_home: Path
    cxx: Path
    ninja: Path


PLACES = BuildPlaces(
    *map(Path, ("/tmp/build-env", "/tmp/toolkit", "/tmp/compilers/g++", "/tmp/ninja/ninja"))  # noqa: S108
)
"""Those in a container. They are the same for every Python, so that compile commands are equal and
a compiler cache serves all."""
Work = Literal["", "plan", "shard", "link"]
TORCH, TORCH_FACTS = "torch.txt", "torch.json"


@dataclasses.dataclass(frozen=True)
class OwnBuildPlan:
    """An ordinary project's own build: all that decides it, in a container or on this machine.

    Attributes:
        torch: the requirement on torch, exact and with the hash of its file.
        requires: build requirements that the project does not declare.
        settings: of its build backend.
        archs: the arch list; empty without a GPU toolkit.
        archs_by: whether TORCH_CUDA_ARCH_LIST or setup.py decides on them.
        backend: "cuda" or "rocm".
        toolkit: the toolkit's folder; None to build for CPUs.
        cxx: the C++ compiler.
        launcher: the compiler launcher.
        python: the Pythons that a wheel is for: "each", "abi3" or "any".
        standard: the C++ standard that torch's headers need, e.g. 20.
        work: "plan" to list its steps, "shard" to compile a part of them, "link" to link what
            other jobs compiled; empty for a build as a whole.
        shard: the part, e.g. "2/3".
        why_empty: why the build may have compiled no kernel, as its scripts tell.
    """

    torch: str
    requires: tuple[str, ...]
    settings: Mapping[str, str]
    archs: str
    archs_by: str
    backend: Backend
    toolkit: Path | None
    cxx: Path
    launcher: tuple[str, ...]
    python: str
    standard: int
    work: Work = ""
    shard: str = "1/1"
    why_empty: str = ""


def dump_plan(plan: OwnBuildPlan) -> str:
    """The plan as JSON."""
    return json.dumps(dataclasses.asdict(plan), indent=1, default=str) + "\n"


def prepare(variant: Path, project: Path) -> None:
    """Install torch and the build requirements; make the compilers and TOOLKIT_HOME of a build.

    Args:
        variant: the variant's folder, with the plan.
        project: the project's sources.
    """
    plan = read_json(variant / PLAN, OwnBuildPlan)
    constraint = variant / TORCH
    write_text(constraint, plan.torch + "\n")
    _install([*_declared_requirements(project), *plan.requires], constraint)
    # An image with ROCm is of a new system, and has an older one to compile against.
    root = os.environ.get(SYSROOT)
    make_compilers(plan, PLACES, sysroot_flags(Path(root), platform.machine()) if root else ())
    facts = _python(["-c", probe_source(), "--torch"], "importing torch")
    write_text(variant / TORCH_FACTS, last_line(facts) + "\n")
    pretended_gpu.install(PLACES.environment)
    # setup.py runs for it, and may ask the compiler for its release and torch for a GPU.
    if missing := _dynamic_requirements(project, plan.settings):
        _install(missing, constraint)
    if plan.work:
        found = sorted(path.name for path in PLACES.environment.glob("*.dist-info"))
        write_text(variant / DIVIDED / ninja_program.REQUIREMENTS, "\n".join(found) + "\n")
        real = shutil.which("ninja")
        if real is None:
            raise TorchwheelError("expected a ninja on the PATH of the container, found none")
        replace_ninja(plan, PLACES, Path(real), variant / DIVIDED, keep=True)


def make_compilers(
    plan: OwnBuildPlan, places: BuildPlaces, older: Sequence[str] = ()
) -> Path | None:
    """Make the toolkit's folder, whose compiler holds the archs, and CXX.

    Both raise an older C++ standard than torch's headers need, and compile with the options
    `older`, which name an older system.

    Returns:
        CUDA_HOME or ROCM_HOME; None without a toolkit.
    """
    # The program itself: in the sandbox a virtual environment's link would lead nowhere.
    python = os.path.realpath(sys.executable)
    if plan.work == "plan":
        for name, program in (("cc", _c_compiler()), (places.cxx.name, [str(plan.cxx), *older])):
            held = gpu_compiler.guard(python, "", "", plan.standard, program)
            write_script(places.cxx.with_name(name), held)
    else:
        program = [*plan.launcher, str(plan.cxx), *older]
        write_script(places.cxx, gpu_compiler.guard(python, "", "", plan.standard, program))
    if plan.toolkit is None:
        return None
    hipcc = plan.toolkit / "bin" / "hipcc"
    nvcc = cuda_program(places.toolkit_home, plan.toolkit)
    compiler = [*plan.launcher, str(hipcc if plan.backend == "rocm" else nvcc), *older]
    held = gpu_compiler.guard(python, plan.archs, plan.archs_by, plan.standard, compiler)
    if plan.backend == "rocm":
        return assemble_rocm_home(places.toolkit_home, plan.toolkit, held)
    return assemble_cuda_home(places.toolkit_home, plan.toolkit, places.environment, held, plan.cxx)


def _c_compiler() -> list[str]:
    """The C compiler that setuptools takes, with its options."""
    return shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc"))


def planned_variables(places: BuildPlaces, project: Path) -> dict[str, str]:
    """The variables by which no compiler compiles a file of a project that is only planned."""
    compilers = {"CC": str(places.cxx.with_name("cc")), "CXX": str(places.cxx)}
    return {**compilers, gpu_compiler.PLANNED: str(project)}


def replace_ninja(
    plan: OwnBuildPlan,
    places: BuildPlaces,
    real: Path,
    steps: Path,
    python: str = sys.executable,
    *,
    keep: bool = False,
) -> None:
    """Write the `ninja` that divides the steps of a build.

    Args:
        plan: the build.
        places: has the file that is written.
        real: the real ninja.
        steps: the folder of the records.
        python: the Python that builds.
        keep: whether the objects are carried to another job.
    """
    if plan.work:
        shard = parse_shard(plan.shard, "shard")
        command = ninja_program.command(
            plan.work, steps, real, plan.cxx, plan.launcher, shard, keep=keep
        )
        ninja_program.check_starts(write_script(places.ninja, command), python)


def _declared_requirements(project: Path) -> Sequence[str]:
    """The build requirements of pyproject.toml; those of setuptools without one."""
    import build  # noqa: PLC0415 - this module is also read where only its names are needed

    try:
        builder = build.ProjectBuilder(project)
    except (build.BuildException, ValueError, RecursionError) as error:
        raise TorchwheelError(f"{project.name}: {' '.join(str(error).split())}") from error
    return sorted(builder.build_system_requires)


SECONDS = 900
"""After these a setup.py that only names its requirements counts as one that hangs."""
_DYNAMIC = """
import json, sys, build
settings = dict(text.split("=", 1) for text in sys.argv[2:])
builder = build.ProjectBuilder(sys.argv[1])
print(json.dumps(sorted(builder.get_requires_for_build("wheel", settings))))
"""


def _dynamic_requirements(project: Path, settings: Mapping[str, str]) -> Sequence[str]:
    """The build requirements that the project's backend adds, by running it."""
    doing = "the project's build backend"
    words = [f"{name}={value}" for name, value in settings.items()]
    output = _python(["-c", _DYNAMIC, str(project), *words], doing)
    try:
        return parse_json(last_line(output), tuple[str, ...], doing)
    except MalformedError as error:
        raise TorchwheelError(f"{doing}: {error.reason}") from error


def _python(arguments: Sequence[str], doing: str) -> str:
    """What a Python that sees the build requirements prints."""
    try:
        done = process.run([sys.executable, *arguments], timeout=SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"{doing}: {error.reason}") from error
    if done.status:
        # A backend's error is followed by that of the frontend that called it.
        errors = [line for line in done.errors.splitlines() if process.RAISED.match(line)]
        reason = errors[0] if errors else done.last_words("it said nothing")
        raise program_error(f"{doing}: {reason}")
    return done.output


def _install(requirements: Sequence[str], torch: Path) -> None:
    """Install requirements beside torch, which stays at its release; links to uv's cache."""
    requirements = checked_requirements(requirements, "the project's build requirements")
    others = [text for text in requirements if canonicalize_name(Requirement(text).name) != "torch"]
    command = ["uv", "pip", "install", "--quiet", "--target", str(PLACES.environment)]
    command += ["--python", sys.executable, "--requirement", str(torch), *others]
    done = process.run(command)
    if done.status:
        said = " ".join((done.errors or done.output).split())
        # uv draws a box around its reasons.
        reason = re.sub(r"[^\x20-\x7e]+ ?", "", said)[-600:]
        raise program_error(f"build requirements beside {torch.read_text().split()[0]}: {reason}")
    set_header_times(PLACES.environment)


def count_cache_use(variant: Path) -> None:
    """Write down what the compiler cache did for a build, when all its objects are in the cache.

    The server ends with the container, and an object that it has not written by then is lost.
    """
    plan = read_json(variant / PLAN, OwnBuildPlan)
    if plan.launcher:
        use = wait_for_writes(plan.launcher, os.environ)
        write_text(variant / CACHE_USE, json.dumps(dataclasses.asdict(use)) + "\n")


def claims_of_built(wheel: Path, claims: Claims, variant: Path) -> Claims:
    """The claims of a built wheel: it borrows the libraries that its torch has loaded."""
    facts = read_json(variant / TORCH_FACTS, EnvironmentTorch)
    plan = read_json(variant / PLAN, OwnBuildPlan)
    nothing = f": {plan.why_empty}; set in build.environment what turns kernels on"
    borrowing = borrowing_claims(wheel, claims, facts.loaded, nothing)
    require_pythons(wheel.name, plan.python)
    return borrowing


def borrowing_claims(wheel: Path, claims: Claims, loaded: Iterable[str], nothing: str) -> Claims:
    """`claims`, with what a wheel of a project's own build tells.

    It borrows those of the libraries `loaded` by its torch that it needs. `nothing` says why a
    wheel without a library is an error.
    """
    libraries = libraries_of(wheel)
    if not libraries:
        raise TorchwheelError(f"{wheel.name}: no library in it{nothing}")
    needed = {name for library in libraries for name in library.needed}
    borrowed = tuple(sorted(name for name in needed & {*loaded} if may_borrow(name, claims)))
    local = parse_wheel_filename(wheel.name)[1].local
    return dataclasses.replace(claims, project_local=local, borrowed=borrowed)


def libraries_of(wheel: Path) -> Sequence[Library]:
    """The libraries in a wheel."""
    with open_wheel(wheel) as opened, opened.extract() as files:
        return [read_library(path, member) for member, path in files.items()]


_TAGS = {"each": r"cp3\d+-cp3\d+", "abi3": r"cp3\d+-abi3", "any": r"py3-none"}


def require_pythons(wheel: str, serves: str) -> None:
    """Raise if a built wheel is for other Pythons than the matrix says."""
    tags = "-".join(wheel.split("-")[-3:-1])
    if not re.fullmatch(_TAGS[serves], tags):
        found = next((name for name, form in _TAGS.items() if re.fullmatch(form, tags)), None)
        do = f"say abis.ordinary.python: {found}" if found else "no wheel is tagged so"
        raise TorchwheelError(
            f"{wheel}: is tagged {tags}; abis.ordinary.python: {serves} expects "
            f"{_TAGS[serves].replace(chr(92) + 'd+', 'x')}; {do}"
        )
