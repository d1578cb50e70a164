"""The plan of a CUDA library with the stable ABI: torch-free kernels, one small binding.

Every decision here has its measurement in docs/design.md.
"""

from collections.abc import Sequence
from pathlib import Path

from torchwheel.builder.library import NativeLibrary
from torchwheel.builder.plan import Plan, Step, Target, object_name, target_version

# What the library does not use is left out by the linker.
_POSITION = ("-fPIC", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections")
_COMPRESS_SINCE = (12, 8)
# torch loads the library for what it registers: it has nothing to export, least of all libstdc++'s
# weak symbols.
EXPORTS = Path(__file__).with_name("exports.map")
_WARNINGS = ("-Wall", "-Wextra", "-Werror")


def stable_plan(
    library: NativeLibrary,
    device: Sequence[str],
    host: Sequence[str],
    binding: Sequence[str],
    target: Target,
) -> Plan:
    """Steps from sources (relative to the project's folder) to `<target.name>.so`."""
    steps = [_device_step(library, source, target) for source in device]
    steps += [_host_step(library, source, target, torch=False) for source in host]
    steps += [_host_step(library, source, target, torch=True) for source in binding]
    objects = tuple(step.output for step in steps)
    stub = _stub_step(target)
    return Plan((*steps, stub, _link_step(objects, stub.output, target)), f"{target.name}.so")


def _includes_and_macros(library: NativeLibrary, target: Target) -> tuple[str, ...]:
    macros = tuple(
        f"-D{name}={value}" if value else f"-D{name}" for name, value in library.macros.items()
    )
    return (*macros, *(f"-I{target.source / folder}" for folder in library.include_dirs))


def _prefix_maps(target: Target) -> tuple[str, ...]:
    """Keep the folders of this machine out of __FILE__, so that any folder gives the same bytes."""
    return (
        f"-ffile-prefix-map={target.source}=.",
        f"-ffile-prefix-map={target.torch_include}=torch",
        f"-ffile-prefix-map={target.cuda_home}=cuda",
    )


def _compile(label: str, compiler: tuple[str, ...], source: str, target: Target) -> Step:
    """From a source to its object, with the headers it included in a depfile."""
    path, output = str(target.source / source), object_name(source)
    depfile = f"{output}.d"
    command = (*target.launcher, *compiler, "-MD", "-MF", depfile, "-c", path, "-o", output)
    return Step(label, command, (path,), output, depfile)


def _device_step(library: NativeLibrary, source: str, target: Target) -> Step:
    host_flags = (*_POSITION, "-Wall", "-Wextra", *_prefix_maps(target))
    # Measured on seven archs: 2.2 MB installed, not 7.2, and a smaller wheel too.
    release = tuple(int(part) for part in target.toolkit.split("."))
    compress = ("--compress-mode=size",) if release >= _COMPRESS_SINCE else ()
    compiler = (
        str(target.cuda_home / "bin" / "nvcc"),
        "-std=c++17",
        "-O3",
        # Archs side by side: half the time for a touched file on 2 cores (7.6 s, not 13.1).
        # A fixed number, so that the command is the same on every machine.
        "--threads=4",
        # cudafe's own stubs warn under -Wextra, so only nvcc's diagnostics are errors here.
        "-Werror=all-warnings",
        *compress,
        "-ccbin",
        target.cxx,
        *target.gencode,
        *(flag for host_flag in host_flags for flag in ("-Xcompiler", host_flag)),
        *_includes_and_macros(library, target),
    )
    return _compile(f"CUDA {source}", compiler, source, target)


def _host_step(library: NativeLibrary, source: str, target: Target, *, torch: bool) -> Step:
    # -isystem: torch's and CUDA's headers are not ours to make warning-free.
    torch_flags = (
        "-DUSE_CUDA",
        f"-DTORCH_TARGET_VERSION={target_version(target.torch_floor)}",
        "-isystem",
        str(target.torch_include),
        "-isystem",
        str(target.torch_include / "torch" / "csrc" / "api" / "include"),
    )
    compiler = (
        target.cxx,
        "-std=c++17",
        "-O2",
        *_POSITION,
        *_WARNINGS,
        *_prefix_maps(target),
        *_includes_and_macros(library, target),
        *(torch_flags if torch else ()),
        "-isystem",
        str(target.cuda_home / "include"),
    )
    return _compile(f"C++ {source}", compiler, source, target)


def _stub_step(target: Target) -> Step:
    """An empty library with torch's soname, to link against: torch itself is not needed."""
    return Step(
        "stub libtorch.so",
        (target.cxx, "-shared", "-nostdlib", "-Wl,-soname,libtorch.so", "-x", "c", "/dev/null")
        + ("-o", "stub/libtorch.so"),
        (),
        "stub/libtorch.so",
    )


def _link_step(objects: tuple[str, ...], stub: str, target: Target) -> Step:
    output = f"{target.name}.so"
    command = (
        target.cxx,
        "-shared",
        # Any libstdc++ of the user serves then, and the platform tag falls.
        # Not libgcc too: its unwinder would bring glibc 2.35's _dl_find_object.
        "-static-libstdc++",
        f"-Wl,--version-script={EXPORTS}",
        "-Wl,--gc-sections",
        # The symbol table holds temporary names with a process id in them.
        "-Wl,--strip-all",
        "-Wl,--build-id=none",
        "-o",
        output,
        *objects,
        # Without this entry the loader cannot find torch's C functions.
        "-Wl,--no-as-needed",
        stub,
        "-Wl,--as-needed",
        f"-L{target.cuda_home / 'lib64'}",
        "-lcudart_static",
        "-lrt",
        "-ldl",
        "-lpthread",
    )
    return Step(f"link {output}", command, (*objects, stub, str(EXPORTS)), output)
