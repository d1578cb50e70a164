"""Provides the toolkit that the matrix names, and checks that it compiles for every arch."""

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torchwheel.matrix.sections import Toolkit
from torchwheel_runtime import process
from torchwheel_runtime.arch.lists import arch_list
from torchwheel_runtime.arch.model import Arch, gencode
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError, program_error
from torchwheel_runtime.files import write_text
from torchwheel_runtime.machine.toolkits import locate_system, require_cuda
from torchwheel_runtime.ownership import trusted_path
from torchwheel_runtime.toolkit.host import HostCompiler, check_bounds
from torchwheel_runtime.toolkit.provision import provision_pypi

_PROBE = """\
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
__global__ void probe(__half* h, __nv_bfloat16* b, float x) {
  *h = __float2half(x);
  *b = __float2bfloat16(x);
}
int main() { return CUDART_VERSION == 0; }
"""
_ERROR = re.compile("error|fatal")


def provide(
    toolkit: Toolkit,
    platform: str,
    host: HostCompiler,
    cache: Path,
    progress: Progress,
) -> Path:
    """The toolkit's folder, provisioned or the system's, verified once for its archs and `host`."""
    if toolkit.backend != "cuda":
        raise UsageError(f"toolkit {toolkit.name}: {toolkit.backend} is built in a container only")
    check_bounds(
        host, toolkit.host_compiler.model_dump(exclude_none=True), f"CUDA {toolkit.version}"
    )
    if toolkit.source == "pypi":
        root, identity = provision_pypi(toolkit.version, platform, cache, progress)
    elif toolkit.source == "system":
        root, identity = locate_system(progress.say)
    else:
        raise UsageError(
            f"toolkit {toolkit.name}: source {toolkit.source!r} is built in a container only"
        )
    archs = toolkit.archs
    facts = [identity, toolkit.version, *map(str, archs), str(host.path), host.version]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    marker = cache / "verified" / f"{key}.json"
    if not _is_trusted(marker):
        with progress.task(f"{toolkit.name}: verifying, a probe kernel for {arch_list(archs)}"):
            release = require_cuda(root, toolkit.version)
            compile_probe(root, archs, str(host.path))
        # A cache that root made for all users is only read: then each run verifies the toolkit.
        with contextlib.suppress(OSError):
            trusted_path(marker.parent, create=True)
            write_text(marker, json.dumps({"release": release, "facts": facts}) + "\n")
    return root


def _is_trusted(marker: Path) -> bool:
    """Whether a marker is there, and only this user and root can have written it."""
    try:
        trusted_path(marker)
    except OSError:
        return False
    return True


def compile_probe(root: Path, archs: Sequence[Arch], host: str) -> None:
    """Compile and link a kernel for every arch; this runs cicc, ptxas, cudart and `host`."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cu"
        source.write_text(_PROBE, encoding="utf-8")
        flags = [flag for arch in archs for flag in gencode(arch)]
        output = source.with_suffix("")
        nvcc = [str(root / "bin" / "nvcc"), "-std=c++17", "-ccbin", host, "--threads=0", *flags]
        try:
            done = process.run([*nvcc, str(source), "-o", str(output), "-cudart=static"])
            if done.status:
                raise program_error(f"nvcc: {done.reason(_ERROR, first=True, otherwise='failed')}")
        except TorchwheelError as error:
            raise TorchwheelError(
                f"the toolkit at {root} cannot compile a probe kernel for "
                f"{arch_list(archs)} with {host}: {error}"
            ) from error
