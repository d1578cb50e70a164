"""What a compiler needs before it runs: torch, a toolkit, an environment and its variables."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from torchwheel.builder.build import parallel_jobs
from torchwheel.console import Progress
from torchwheel.pipeline.run import Clock
from torchwheel.sdist.environment import (
    BYTES_PER_COMPILER,
    assemble_cuda_home,
    script,
    sdist_environment,
)
from torchwheel.sdist.request import SdistRequest
from torchwheel.sdist.target import PLATFORM, SdistTarget, toolkit_for, torch_of, usual_torch
from torchwheel.smoke import environment
from torchwheel.smoke.environment import Environment
from torchwheel.toolkit.host import HostCompiler, host_compiler
from torchwheel.toolkit.provide import provide


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A build that can begin.

    Attributes:
        target: what is built for.
        base: the cached environment that holds torch.
        env: the environment of the build, on top of it.
        host: the C++ compiler.
        jobs: compilers that may run side by side.
        environ: what setup.py is told.
    """

    target: SdistTarget
    base: Path
    env: Environment
    host: HostCompiler
    jobs: int
    environ: Mapping[str, str]


def prepare(
    request: SdistRequest, folder: Path, cache: Path, progress: Progress, clock: Clock
) -> Prepared:
    """Bring about all that a build of `request` needs; what is its own alone goes into `folder`."""
    with clock.step("torch"):
        release = request.torch or usual_torch()
        # pytest as well: then it is the environment that smoke tests with this torch share.
        base = environment.base(cache, ("pytest", f"torch=={release}"), progress)
        env = environment.over(base, folder / "env")
        torch = torch_of(env, folder)
    toolkit = None
    if not request.cpu:
        toolkit = toolkit_for(torch, request.toolkit, request.archs, progress.say)
    host, home = host_compiler(), None
    if toolkit:
        with clock.step("toolkit"):
            root = provide(toolkit, toolkit.archs, PLATFORM, host, cache, progress)
        site = environment.site_of(base)
        home = assemble_cuda_home(folder / "cuda", root, site, request.launcher)
    cxx = host.path
    if request.launcher:
        cxx = script(folder / "cxx" / cxx.name, [*request.launcher, str(cxx)])
    jobs = parallel_jobs(bytes_per_job=BYTES_PER_COMPILER)
    archs = toolkit.archs if toolkit else ()
    environ = sdist_environment(env, cuda_home=home, archs=archs, host=host, cxx=cxx, jobs=jobs)
    return Prepared(SdistTarget(torch, toolkit), base, env, host, jobs, environ)
