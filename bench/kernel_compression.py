r"""Size of a CUDA kernel library under each compression of its machine code, and a wheel of each.

    python bench/kernel_compression.py WHEEL --library cu130 --objects FOLDER \
        --cuda CUDA_HOME --out FOLDER

FOLDER has the library's objects, as a build leaves them in torchwheel's cache (`cu130-shared-…`).
Nothing is compiled: the machine code and PTX in each object are packed again by CUDA's own
`fatbinary`, and the objects are linked. The wheels hold that kernel library alone; `bench/load.py`
measures what they cost to load on a GPU.
"""

import argparse
import dataclasses
import json
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline import write_record

from torchwheel.pipeline.repair import dist_info_of, pack, stamp, wheel_members
from torchwheel_runtime import builder, claims
from torchwheel_runtime.files import sha256
from torchwheel_runtime.inspect.cuda import find_cuobjdump
from torchwheel_runtime.text import size_text, table_rows

MODES = {
    "none": ("--compress=false",),
    "all": ("--compress-all",),
}
MODES_OF_12_8 = {
    "none": ("--compress-mode=none",),
    **{
        f"all, {mode}": ("--compress-all", f"--compress-mode={mode}")
        for mode in ("speed", "balance", "default")
    },
    "size": ("--compress-mode=size",),
}
"""Without --compress-all the modes but `size` compress PTX alone."""
_SECTION = ".nv_fatbin"


@dataclasses.dataclass(frozen=True)
class Images:
    """The machine code and PTX of one object, uncompressed, as arguments of fatbinary."""

    object: Path
    arguments: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Packed:
    """A library under one mode: bytes installed, and bytes in a wheel, which deflates them."""

    mode: str
    installed: int
    in_wheel: int


def run(command: Sequence[str | Path], folder: Path) -> None:
    """Run a tool; its words are shown if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{Path(command[0]).name}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def extract(one: Path, folder: Path) -> Images:
    """Take the images out of an object."""
    folder.mkdir(parents=True)
    cuobjdump = find_cuobjdump()
    run([cuobjdump, "-xelf", "all", one], folder)
    run([cuobjdump, "-xptx", "all", one], folder)
    return Images(one, tuple(image_arguments(sorted(folder.iterdir()))))


def image_arguments(files: Iterable[Path]) -> list[str]:
    """The arguments of fatbinary for the files that cuobjdump writes, e.g. `norm.sm_90.cubin`."""
    arguments = []
    for file in files:
        *_, arch, suffix = file.name.split(".")
        kind = {"cubin": "elf", "ptx": "ptx"}[suffix]
        arguments.append(f"--image3=kind={kind},sm={arch.removeprefix('sm_')},file={file}")
    return arguments


def packed_object(images: Images, options: Sequence[str], cuda: Path, folder: Path) -> Path:
    """A copy of the object with its images packed with `options`."""
    folder.mkdir(parents=True, exist_ok=True)
    fatbin, copy = folder / "images.fatbin", folder / images.object.name
    run(
        [cuda / "bin" / "fatbinary", f"--create={fatbin}", "-64", *options, *images.arguments],
        folder,
    )
    run(["objcopy", f"--update-section={_SECTION}={fatbin}", images.object, copy], folder)
    return copy


def link(objects: Sequence[Path], cuda: Path, target: Path) -> Path:
    """The kernel library of the objects."""
    target.parent.mkdir(parents=True, exist_ok=True)
    exports = Path(builder.__file__).with_name("part.map")
    (runtime,) = cuda.glob("**/libcudart_static.a")
    flags = ["-static-libstdc++", f"-Wl,--version-script={exports}", "-Wl,--gc-sections"]
    flags += ["-Wl,--strip-all", "-Wl,--build-id=none"]
    libraries = [str(runtime), "-lrt", "-ldl", "-lpthread"]
    run(["g++", "-shared", *flags, "-o", target, *objects, *libraries], target.parent)
    return target


def wheel_with(wheel: Path, name: str, library: Path, out: Path) -> Path:
    """A copy of the universal wheel whose only kernel library is `library`, named `name`."""
    members = wheel_members(wheel)
    info = dist_info_of(members, wheel.name)
    claimed = claims.loads(members[f"{info}/{claims.FILE}"].decode(), wheel.name)
    dropped = {p.file for p in claimed.parts if p.kind == "kernels" and p.name != name}
    parts = tuple(
        dataclasses.replace(part, sha256=sha256(library)) if part.name == name else part
        for part in claimed.parts
        if part.file not in dropped
    )
    (file,) = (part.file for part in parts if part.name == name)
    kept = {path: data for path, data in members.items() if path not in dropped}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        merged = Path(folder) / wheel.name
        record = f"{info}/RECORD"
        own = {path: data for path, data in kept.items() if path != record}
        pack({**own, file: library.read_bytes()}, record, merged)
        return stamp(merged, dataclasses.replace(claimed, parts=parts), out)


def text(library: str, sizes: Sequence[Packed]) -> str:
    """The table of one library."""
    rows = [(library, "installed", "in the wheel")]
    rows += [(one.mode, size_text(one.installed), size_text(one.in_wheel)) for one in sizes]
    return "\n".join(table_rows("<14 >10 >13", rows))


def main() -> None:
    """Pack, link and measure the library in every mode; write the wheels and the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--library", required=True, help="e.g. cu130")
    parser.add_argument("--objects", type=Path, required=True)
    parser.add_argument("--cuda", type=Path, required=True, help="the toolkit that made them")
    parser.add_argument("--out", type=Path, help="folder for a wheel of each mode")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    help_text = subprocess.run(
        [options.cuda / "bin" / "fatbinary", "--help"], capture_output=True, text=True, check=True
    ).stdout
    modes = MODES_OF_12_8 if "--compress-mode" in help_text else MODES
    folders = [options.objects / name for name in ("device", "host")]
    folders += options.objects.glob("interface-*")
    objects = sorted(one.resolve() for folder in folders for one in folder.rglob("*.o"))
    sizes = []
    with tempfile.TemporaryDirectory(prefix="bench-compression-") as temporary:
        scratch = Path(temporary)
        device = [one for one in objects if one.name.endswith(".cu.o")]
        images = [extract(one, scratch / "images" / one.name) for one in device]
        rest = [one for one in objects if one not in device]
        for mode, flags in modes.items():
            folder = scratch / mode
            packed = [packed_object(one, flags, options.cuda, folder) for one in images]
            library = link([*packed, *rest], options.cuda, folder / f"{options.library}.so")
            data = library.read_bytes()
            sizes.append(Packed(mode, len(data), len(zlib.compress(data, 9))))
            if options.out:
                name = mode.replace(", ", "-")
                wheel_with(options.wheel, options.library, library, options.out / name)
    print(text(options.library, sizes))
    if options.record:
        found = json.loads(options.record.read_text()) if options.record.is_file() else {}
        libraries = found.get("libraries", {})
        libraries[options.library] = [dataclasses.asdict(one) for one in sizes]
        write_record(options.record, {"wheel": options.wheel.name, "libraries": libraries})


if __name__ == "__main__":
    main()
