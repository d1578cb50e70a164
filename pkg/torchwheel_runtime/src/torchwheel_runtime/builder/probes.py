"""Asks the C++ compiler which of an extension's probes hold, and remembers its answers."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.builder.extension import Extension
from torchwheel_runtime.builder.flags import Flags, Probe, check_flags
from torchwheel_runtime.builder.recipe import link_flags
from torchwheel_runtime.builder.target import Target
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import write_text
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.ownership import trusted_path
from torchwheel_runtime.toolkit.cache import cache_path

_CPU_FACTS = Path("/proc/cpuinfo")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def find_probes(
    extension: Extension, target: Target, cpu: frozenset[str] | None = None
) -> frozenset[str]:
    """The names of the extension's probes that hold for the target's C++ compiler.

    Args:
        extension: the extension.
        target: the build; its `probes` do not count.
        cpu: the features of the CPU that will run the library; None for any CPU.

    Raises:
        UsageError: a probe is malformed, or the compiler cannot be run.
    """
    return frozenset(
        probe.name
        for probe in _check_probes(extension.probes)
        if (not probe.cpu or (cpu is not None and cpu.issuperset(probe.cpu)))
        and _holds(probe, target)
    )


def cpu_features() -> frozenset[str]:
    """The features of this machine's CPU, e.g. "avx2"; none where Linux does not say."""
    try:
        text = _CPU_FACTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def _check_probes(probes: Iterable[Probe]) -> Iterator[Probe]:
    names: set[str] = set()
    for probe in probes:
        if probe.name in names:
            raise UsageError(
                f"Extension.probes: expected names that differ, found {probe.name!r} twice; rename "
                "one"
            )
        names.add(probe.name)
        check_flags(probe.flags, f"Probe({probe.name!r})")
        if probe.function and not _IDENTIFIER.fullmatch(probe.function):
            raise UsageError(
                f"Probe({probe.name!r}).function: expected the name of a C function, found "
                f'{probe.function!r}; write e.g. "io_submit"'
            )
        yield probe


def _holds(probe: Probe, target: Target) -> bool:
    """The compiler's answer, from the cache if it has been asked before."""
    command = _command(probe.flags, target)
    program = "int main() { return 0; }\n"
    if name := probe.function:  # linked only if there is this one
        program = f'extern "C" char {name}();\nint main() {{ return {name}(); }}\n'
    facts = [*_identity(target.cxx), *command, program]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    with contextlib.suppress(TorchwheelError, OSError):
        return read_json(trusted_path(_answers() / f"{key}.json"), bool)
    answer = _compile(command, program)
    # A library may be installed later, so a "no" that it could change is not kept.
    if answer or not (probe.function or probe.flags.libraries):
        with contextlib.suppress(TorchwheelError, OSError):  # the cache cannot be used
            write_text(trusted_path(_answers(), create=True) / f"{key}.json", json.dumps(answer))
    return answer


def _answers() -> Path:
    return cache_path() / "probes"


def _command(flags: Flags, target: Target) -> list[str]:
    """From the file probe.cpp to a program, in the working folder."""
    before = (target.cxx, target.standard, *target.sysroot, *flags.cxx)
    names = ("-x", "c++", "probe.cpp", "-x", "none", "-o", "probe")
    return [*before, *names, *link_flags(flags, target)]


def _identity(cxx: str) -> list[str]:
    """What changes if the compiler is another one."""
    path = Path(os.path.realpath(shutil.which(cxx) or cxx))
    try:
        facts = path.stat()
    except OSError as error:
        raise UsageError(f"{cxx}: expected a C++ compiler, found none; set CXX") from error
    return [str(path), str(facts.st_size), str(facts.st_mtime_ns)]


def _compile(command: list[str], program: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "probe.cpp").write_text(program, encoding="utf-8")
        return process.run(command, cwd=Path(folder)).status == 0
