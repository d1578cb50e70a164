"""Proof that a toolkit is one compiler and makes code for every arch asked for."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torchwheel import process
from torchwheel.arch.lists import arch_list
from torchwheel.arch.model import Arch, gencode
from torchwheel.errors import TorchwheelError, program_error

_ERROR = re.compile("error|fatal")
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


def _output(command: Sequence[str]) -> str:
    """What a tool of the toolkit prints; a tool that does not start is one line."""
    done = process.run(command)
    if done.status:
        why = done.reason(_ERROR, first=True, otherwise="failed")
        raise program_error(f"{Path(command[0]).name}: {why}")
    return done.output + done.errors


def _release(tool: Path) -> str:
    """The release a tool prints of itself, e.g. "13.0.88"."""
    found = re.search(r"\bV(\d+\.\d+\.\d+)", _output([str(tool), "--version"]))
    if not found:
        raise TorchwheelError(f"{tool}: prints no release for --version")
    return found[1]


def _cudart_version(root: Path) -> str:
    """The runtime's version from its header, as "13.0"."""
    header = root / "include" / "cuda_runtime_api.h"
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TorchwheelError(f"{header}: {error.strerror}") from error
    found = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    if not found:
        raise TorchwheelError(f"{header}: defines no CUDART_VERSION")
    number = int(found[1])
    return f"{number // 1000}.{number % 1000 // 10}"


def agreed_release(root: Path, version: str) -> str:
    """Nvcc's release, after nvcc, ptxas and cudart were found to be of CUDA `version`."""
    releases = {tool: _release(root / "bin" / tool) for tool in ("nvcc", "ptxas")}
    if len(set(releases.values())) > 1:
        named = ", ".join(f"{tool} {release}" for tool, release in releases.items())
        raise TorchwheelError(
            f"{root}: a mixed toolkit: {named}; every component must be one release"
        )
    release = releases["nvcc"]
    for name, found in (
        ("nvcc", ".".join(release.split(".")[:2])),
        ("cudart", _cudart_version(root)),
    ):
        if found != version:
            raise TorchwheelError(f"{root}: {name} is of CUDA {found}; {version} was asked for")
    return release


def probe(root: Path, archs: Sequence[Arch], host: str) -> None:
    """Compile and link a kernel for every arch: cicc, ptxas, crt, cudart and `host` in one go."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cu"
        source.write_text(_PROBE, encoding="utf-8")
        flags = [flag for arch in archs for flag in gencode(arch)]
        output = source.with_suffix("")
        try:
            _output(
                [str(root / "bin" / "nvcc"), "-std=c++17", "-ccbin", host, "--threads=0", *flags]
                + [str(source), "-o", str(output), "-cudart=static"]
            )
        except TorchwheelError as error:
            raise TorchwheelError(
                f"the toolkit at {root} cannot compile a probe kernel for "
                f"{arch_list(archs)} with {host}: {error}"
            ) from error
