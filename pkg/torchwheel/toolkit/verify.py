"""Checks that the parts of a toolkit are one release and compile for every arch."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torchwheel import process
from torchwheel.arch.lists import arch_list
from torchwheel.arch.model import Arch, gencode
from torchwheel.errors import TorchwheelError, program_error
from torchwheel.versions import minor_version

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


def _tool_output(command: Sequence[str]) -> str:
    """The output of a tool of the toolkit; a failure is one line."""
    done = process.run(command)
    if done.status:
        why = done.reason(_ERROR, first=True, otherwise="failed")
        raise program_error(f"{Path(command[0]).name}: {why}")
    return done.output + done.errors


def _tool_release(tool: Path) -> str:
    """The release that a tool prints for --version, e.g. "13.0.88"."""
    match = re.search(r"\bV(\d+\.\d+\.\d+)", _tool_output([str(tool), "--version"]))
    if not match:
        raise TorchwheelError(f"{tool}: prints no release for --version")
    return match[1]


def _cudart_version(root: Path) -> str:
    """The runtime's version from its header, as "13.0"."""
    header = root / "include" / "cuda_runtime_api.h"
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TorchwheelError(f"{header}: {error.strerror}") from error
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    if not match:
        raise TorchwheelError(f"{header}: defines no CUDART_VERSION")
    number = int(match[1])
    return f"{number // 1000}.{number % 1000 // 10}"


def nvcc_release(root: Path) -> str:
    """The release of a toolkit by its nvcc, as "13.0"."""
    return minor_version(_tool_release(root / "bin" / "nvcc"))


def agreed_release(root: Path, version: str) -> str:
    """The release of nvcc; nvcc, ptxas and cudart must all be of CUDA `version`."""
    releases = {tool: _tool_release(root / "bin" / tool) for tool in ("nvcc", "ptxas")}
    if len(set(releases.values())) > 1:
        named = ", ".join(f"{tool} {release}" for tool, release in releases.items())
        raise TorchwheelError(
            f"{root}: a mixed toolkit: {named}; every component must be one release"
        )
    release = releases["nvcc"]
    for name, part_version in (
        ("nvcc", ".".join(release.split(".")[:2])),
        ("cudart", _cudart_version(root)),
    ):
        if part_version != version:
            raise TorchwheelError(
                f"{root}: {name} is of CUDA {part_version}; {version} was asked for"
            )
    return release


def compile_probe(root: Path, archs: Sequence[Arch], host: str) -> None:
    """Compile and link a kernel for every arch; this runs cicc, ptxas, cudart and `host`."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cu"
        source.write_text(_PROBE, encoding="utf-8")
        flags = [flag for arch in archs for flag in gencode(arch)]
        output = source.with_suffix("")
        try:
            _tool_output(
                [str(root / "bin" / "nvcc"), "-std=c++17", "-ccbin", host, "--threads=0", *flags]
                + [str(source), "-o", str(output), "-cudart=static"]
            )
        except TorchwheelError as error:
            raise TorchwheelError(
                f"the toolkit at {root} cannot compile a probe kernel for "
                f"{arch_list(archs)} with {host}: {error}"
            ) from error
