"""The inputs that mutations start from: right ones, and the hostile ones that were found."""

import dataclasses
import functools
import gzip
import io
import json
import struct
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import hostile
from elfmaker import (
    code_object,
    cubin,
    cuda_library,
    fatbin,
    hip_library,
    linked,
    make_bundle,
    make_elf,
    module,
    packed,
    ptx,
)
from linkmaker import LEAVING, STAYING
from torchwheel.index import catalogue
from torchwheel.index.needs import IndexNote, needs_of_claims, note_json
from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline.build_records import BuildRecord
from torchwheel.pipeline.kernel_artifacts import KernelInputs, Manifest
from torchwheel.smoke.smoke_record import (
    GpuRecord,
    ImportRecord,
    MachineRecord,
    SmokeRecord,
    TestResult,
    dump_smoke,
    summarize,
)
from torchwheel_runtime import claims, data
from torchwheel_runtime.builder.objects import SCHEMA, CompiledObject
from torchwheel_runtime.jit.lookup import CacheEntry
from wheelmaker import make_wheel, metadata, stable, universal, wheel_around

HERE = Path(__file__).parent
UNIT = HERE.parent / "unit"
ROOT = HERE.parents[1]

Inputs = Mapping[str, bytes]
"""Inputs by their names."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Inputs of a reader.

    Attributes:
        right: it must take these.
        hostile: it must refuse these.
        others: inputs that once broke a promise; it may do either.
    """

    right: Inputs
    hostile: Inputs = dataclasses.field(default_factory=dict)
    others: Inputs = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.all)

    @functools.cached_property
    def all(self) -> Inputs:
        """All of them, in a fixed order."""
        return {**self.right, **self.hostile, **self.others}


def kept(target: str) -> Inputs:
    """The files of corpus/TARGET."""
    return {path.name: path.read_bytes() for path in sorted((HERE / "corpus" / target).glob("*"))}


def matrices() -> Corpus:
    """Of matrix.yaml."""
    good = (UNIT / "matrix/good.yaml").read_bytes()
    right = {
        "good": good,
        "small": (UNIT / "matrix/small.yaml").read_bytes(),
        "full": (UNIT / "matrix/full.yaml").read_bytes(),
    }
    bad = {
        "surrogate": good.replace(b"schema: 1", b'schema: "\\ud800"'),
        "surrogate in a key": good + b'"\\udcff": 1\n',
        "not utf-8": good + b"\xff\xfe",
        "nested": good + b"a: " + b"[" * 5000,
        "aliases": b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
        "long number": good.replace(b"schema: 1", b"schema: " + b"9" * 5000),
        "long key": good + b"? " + b"k" * 5000 + b"\n: 1\n",
        "control": good + b'"\\x1b[2J": "\\0"\n',
    }
    return Corpus(right, bad, kept("matrix"))


def wheels() -> Corpus:
    """Of wheels: pure, with a library, universal; and those of hostile.py."""
    with tempfile.TemporaryDirectory() as folder:
        library = make_elf(symbols=["PyInit__C"])
        made = {
            "pure": make_wheel(Path(folder)),
            "library": wheel_around(Path(folder), library, stable(), "linux_x86_64"),
            "universal": make_wheel(Path(folder), claims=universal(), tag="py3-none-linux_x86_64"),
        }
        right = {name: path.read_bytes() for name, path in made.items()}
    bad = {name: _made(one.make) for name, one in hostile.WHEELS.items()}
    bad["claims nested"] = _made(_claims_nested)
    # A device or a pipe has no bytes of its own: the tests of hostile.py read them.
    return Corpus(right, {name: data for name, data in bad.items() if data}, kept("wheel"))


def anybodys_wheels() -> Corpus:
    """Of wheels that `inspect` reads: it refuses those that are no archive."""
    known = wheels()
    library = linked(
        undefined=["_ZN3c106detail14torchCheckFailEPKc", "aoti_torch_empty", "PyList_New"],
        needed=["libcudart.so.12", "libx-0a1b2c3d.so.1"],
        run_paths=["$ORIGIN:/somewhere"],
        sections={".nv_fatbin": fatbin(module(cubin()), module(ptx(), kind=1))},
    )
    with tempfile.TemporaryDirectory() as folder:
        files = {"demo/_C.so": library, "demo.libs/libx-0a1b2c3d.so.1": linked()}
        path = make_wheel(Path(folder), tag="cp312-abi3-linux_x86_64", files=files, claims=None)
        right = {**known.right, "foreign": path.read_bytes()}
    return Corpus(right, {}, {**known.hostile, **known.others, **kept("inspect")})


def _made(make: Callable[[Path], Path]) -> bytes:
    """The bytes of a hostile wheel; none if it is no regular file."""
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder))
        regular = path.is_file() and not path.is_symlink()
        return path.read_bytes() if regular else b""


def _claims_nested(folder: Path) -> Path:
    name = f"{hostile.INFO}/{claims.FILE}"
    return make_wheel(folder, bend=lambda members: members.update({name: b"[" * 100_000}))


def libraries() -> Corpus:
    """Of ELF libraries with symbols, versions and device code."""
    right = {
        "plain": make_elf(symbols=["one", "two"], sections={".text": bytes(64)}),
        "hip": hip_library(make_bundle({"gfx90a": code_object()})),
        "cuda": cuda_library(fatbin(module(cubin()), module(ptx(), kind=1))),
        "code object": code_object(),
    }
    bad = {"header alone": make_elf()[:64], "text": b"#!/bin/sh\n", "nothing": b""}
    bad |= {name: make() for name, (make, _) in hostile.LIBRARIES.items()}
    # Only a wheel has a limit of all its symbols.
    endless = {"many symbols": bad.pop("many_symbols"), **hostile.DEFINING}
    return Corpus({**right, **_linked_library()}, bad, {**endless, **kept("elf")})


def _linked_library() -> Inputs:
    """The smallest library of this Python that was linked with versions of symbols."""
    folder = Path(sys.modules["_json"].__file__ or "").parent if "_json" in sys.modules else HERE
    files = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_size)
    return {"linked": files[0].read_bytes()} if files else {}


_BLOCK = bytes(1 << 20)


def packed_zeros(size: int) -> bytes:
    """A packed bundle of zeros; its deflate stream is made of equal blocks."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(_BLOCK) + packer.flush(zlib.Z_FULL_FLUSH)
    count = size // len(_BLOCK)
    adler = functools.reduce(lambda sum_, _: zlib.adler32(_BLOCK, sum_), range(count), 1)
    body = b"\x78\x9c" + block * count + packer.flush() + adler.to_bytes(4, "big")
    return struct.pack("<4sHHQQ8x", b"CCOB", 3, 0, 32 + len(body), size) + body


def bundles() -> Corpus:
    """Of sections with HIP code."""
    plain = make_bundle({"gfx90a": code_object()}, align=256)
    right = {
        "plain": plain,
        "two": plain + bytes(64) + make_bundle({"gfx942": code_object(0x54C)}, align=256),
        "packed": packed(plain),
        "packed in version 2": packed(plain, version=2),
    }
    bad = {
        "a gigabyte of zeros": packed_zeros(1 << 30),
        "many packed zeros": packed_zeros(1 << 26) * 16,
        "claims a gigabyte": packed(plain, size=1 << 30),
    }
    return Corpus(right, bad, kept("bundle"))


def fat_binaries() -> Corpus:
    """Of sections with CUDA code."""
    outputs = UNIT / "inspect/outputs"
    right = {
        "plain": fatbin(module(cubin()), module(ptx(), kind=1)),
        **{path.stem: path.read_bytes() for path in sorted(outputs.glob("*.nv_fatbin"))},
    }
    bad = {
        "text": b"text",
        "claims much": fatbin(module(b"\x7fELF", 80, flags=0x8011, size=1 << 40)),
        "another arch inside": fatbin(module(cubin(90), 80)),
        "cut short": fatbin(module(cubin()))[:-8],
    }
    return Corpus(right, bad, kept("fatbin"))


def printed() -> Corpus:
    """What cuobjdump prints."""
    folder = UNIT / "inspect/outputs"
    right = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.txt"))}
    return Corpus(right, {"a shell's words": b"sh: cuobjdump: not found\n"}, kept("cuobjdump"))


def dist_info_files() -> Corpus:
    """METADATA, WHEEL and RECORD of an installed distribution, as one text."""
    good = "\n===\n".join(
        (
            metadata("demo", "1.0.0", ["torch>=2.6"]).decode(),
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "demo/__init__.py,,\n../../bin/demo,,\ndemo-1.0.0.dist-info/RECORD,,\n",
        )
    ).encode()
    others = {
        "nul in RECORD": good.replace(b"demo/__init__", b"demo/\0init"),
        "control in RECORD": good.replace(b"demo/__init__", b"demo/\x1b[2J"),
        "27 million tags": good.replace(
            b"py3-none-any", b"-".join([b".".join(b"t%d" % n for n in range(300))] * 3)
        ),
        "many rows": good + b"".join(b"f%d,,1\n" % n for n in range(20_000)),
        "long name": good.replace(b"Name: demo", b"Name: " + b"x" * 5000),
    }
    return Corpus({"good": good}, {}, {**others, **kept("dist-info")})


def _sdist(links: Mapping[str, str]) -> bytes:
    """A tar with a project and symbolic links."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind, link in (
            ("demo-1.0", tarfile.DIRTYPE, ""),
            ("demo-1.0/setup.py", tarfile.REGTYPE, ""),
            ("demo-1.0/one.h", tarfile.REGTYPE, ""),
            *((f"demo-1.0/{name}", tarfile.SYMTYPE, text) for name, text in links.items()),
            ("demo-1.0/three.h", tarfile.LNKTYPE, "demo-1.0/one.h"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            info.size = 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(b"text"[: info.size]))
    return made.getvalue()


def sdists() -> Corpus:
    """Of source archives."""
    plain = _sdist({"two.h": "one.h"})
    right = {"plain": plain, "gzip": gzip.compress(plain, mtime=0), "links": _sdist(STAYING)}
    texts = {"outside": "/outside", "folder": "/demo-1.0", "name": "demo-1.0"}
    bad = {
        "zeros": gzip.compress(bytes(1 << 26), mtime=0),
        "no member": gzip.compress(bytes(1024), mtime=0),
        **{
            f"link to {case}": _sdist({name: text.format(**texts) for name, text in links.items()})
            for case, links in LEAVING.items()
        },
        # The others are large when they are unpacked: mutations of them take seconds.
        **{
            name: hostile.sdist(name) for name in ("deep", "large header", "headers before headers")
        },
    }
    return Corpus(right, bad, kept("sdist"))


DIGEST = "0" * 64
WHEEL = "demo-1.0.0-py3-none-any.whl"


def claims_texts() -> Inputs:
    """Of torchwheel.json."""
    return {
        "stable": claims.dumps(stable()).encode(),
        "universal": claims.dumps(universal()).encode(),
    }


def entry_texts() -> Inputs:
    """Of the JIT cache's entry.json."""
    entry = CacheEntry(
        *("0" * 16, "demo.scale", ("9.0",), "cuda 13.0 gcc 12.2", "2.11", "scale.so", 8, DIGEST)
    )
    return {"good": json.dumps(dataclasses.asdict(entry)).encode()}


def record_texts() -> Inputs:
    """Of a build's record."""
    record = BuildRecord(
        *("pure", "k" * 16, WHEEL, DIGEST, 1000, ("9.0",), "any", 7, "passed", 1.5),
        steps={"build": 1.0},
        bundled={WHEEL: DIGEST},
    )
    text = json.dumps(dataclasses.asdict(record))
    return {
        "good": text.encode(),
        "file is a number": text.replace(f'"file": "{WHEEL}"', '"file": 5').encode(),
        "file is the folder above": text.replace(f'"file": "{WHEEL}"', '"file": ".."').encode(),
    }


def artifact_texts() -> Inputs:
    """Of a build's and of a smoke run's record."""
    machine = MachineRecord(
        "3.12", "linux", "2.36", "2.11.0", "13.0", None, GpuRecord("H100", "9.0", "580")
    )
    record = SmokeRecord(
        *(WHEEL, DIGEST, 1000, "2026-11-24T08:00:00+00:00", machine),
        (ImportRecord("demo", "demo/__init__.py"),),
        summarize(
            (
                TestResult("test_demo.py::test_a", "passed", 0.5),
                TestResult("test_gpu.py::test_b", "skipped", 0.0, "no GPU"),
            )
        ),
        *(DIGEST, {"demo": {"scale": "prebuilt"}}, "passed"),
        variables={"TORCHWHEEL_CACHE": None, "TORCHWHEEL_LIBRARY": "cu124"},
        choices={"demo": ("front end: stable",)},
    )
    return {"build": record_texts()["good"], "smoke": dump_smoke(record).encode()}


def request_texts() -> Inputs:
    """Of the call that --resume repeats."""
    return {"good": b'{"variants": ["cu130-stable"], "archs": ["9.0"], "container": false}\n'}


def catalogue_texts() -> Inputs:
    """Of a release's catalogue."""
    with tempfile.TemporaryDirectory() as folder:
        wheels = [
            make_wheel(Path(folder)),
            make_wheel(Path(folder), version="1.0.0+cu130", claims=stable()),
            make_wheel(Path(folder), tag="py3-none-manylinux_2_28_x86_64", claims=universal()),
        ]
        entries = [
            catalogue.read_wheel_entry(read_wheel(wheel), "2026-11-24T08:00:00Z")
            for wheel in wheels
        ]
    made = catalogue.Catalogue("demo", "v1.0.0", tuple(entries))
    return {"good": catalogue.catalogue_text(made).encode()}


def page_texts() -> Inputs:
    """Of the page of a project in an index, as JSON."""
    note = note_json(IndexNote(needs_of_claims(stable())))
    files = (WHEEL, "demo-1.0.0+cu130torch2.11-cp312-cp312-manylinux_2_28_x86_64.whl")
    entries: list[dict[str, object]] = [
        {
            **{"filename": file, "url": f"../../files/{file}", "hashes": {"sha256": DIGEST}},
            **{"size": 8, "requires-python": ">=3.10", "yanked": False, "_torchwheel": note},
            **{"core-metadata": {"sha256": DIGEST}, "provenance": "/p.json"},
        }
        for file in files
    ]
    document = {"meta": {"api-version": "1.4"}, "name": "demo", "files": entries}
    digits = json.dumps(document).replace(">=3.10", ">=" + "9" * 5000)
    return {
        "good": json.dumps(document).encode(),
        "many digits in a range": digits.encode(),
        "many digits in a name": digits.replace("1.0.0-py3", "9" * 5000 + "-py3").encode(),
    }


def html_pages() -> Corpus:
    """Of the page of a project in an index, as HTML."""
    anchor = f"""<a href="../{WHEEL}#sha256={DIGEST}" data-requires-python="&gt;=3.10"
        data-core-metadata="sha256={DIGEST}" data-yanked="wrong" data-provenance="/p">x</a>"""
    good = f"<!DOCTYPE html><html><body>{anchor * 2}</body></html>"
    others = {
        "many digits": good.replace("1.0.0", "9" * 5000).encode(),
        "open tags": b"<a href='x'" * 20_000,
        "comments": b"<!--" * 20_000,
        "marked sections": b"<![" * 20_000,
        "references": b"<a href='" + b"&#x110000;&" * 20_000 + b"'>",
    }
    bad = {"not utf-8": b"<a href='\xff'>", "many links": b"<a href=x>" * 20_001}
    return Corpus({"good": good.encode(), "nothing": b""}, bad, {**others, **kept("page-html")})


def withdrawal_files() -> Corpus:
    """Of yanked.yaml."""
    good = b"""schema: 1
yanked:
  demo==1.0.0: wrong sums
removed:
  demo-1.0.0-py3-none-any.whl: gone
projects:
  demo: {status: archived, reason: it is part of torch}
"""
    bad = {
        "empty": b"",
        "many digits": good.replace(b"1.0.0:", b"9" * 5000 + b":"),
        "nested": good + b"a: " + b"[" * 5000,
        "aliases": b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
        "not utf-8": good + b"\xff",
        "large": good + b"#" * (1 << 20),
    }
    return Corpus({"good": good, "ours": (ROOT / "yanked.yaml").read_bytes()}, bad, kept("yanked"))


def pyprojects() -> Corpus:
    """Of pyproject.toml."""
    good = b"""[build-system]
requires = ["setuptools>=77", "torch>=2.6"]
build-backend = "setuptools.build_meta"
[project]
name = "demo"
requires-python = ">=3.10"
dependencies = ["numpy>=2"]
[project.scripts]
demo = "demo:main"
[tool.setuptools]
packages = ["demo"]
"""
    bad = {
        "nested": b"x = " + b"[" * 50_000 + b"]" * 50_000,
        "number of many digits": b"x = " + b"9" * 5000,
        "not utf-8": good + b"\xff",
        "key twice": good + b"[project]\n",
        "large": good + b"#" * (1 << 20),
        **{f"long key {name}": text.encode() for name, text in hostile.LONG_KEYS.items()},
    }
    others = {"many digits": good.replace(b"2.6", b"9" * 5000).replace(b"3.10", b"9" * 5000)}
    right = {"good": good, "ours": (ROOT / "pyproject.toml").read_bytes()}
    return Corpus(right, bad, {**others, **kept("pyproject")})


def setup_configs() -> Corpus:
    """Of setup.cfg."""
    good = b"""[metadata]
name = demo
[options]
packages = find:
install_requires =
    torch>=2.6
python_requires = >=3.10
[bdist_wheel]
py_limited_api = cp310
"""
    bad = {
        "no section": b"name = demo\n",
        "not utf-8": good + b"\xff",
        "large": good + b"#" * (1 << 20),
    }
    others = {
        "many digits": good.replace(b"2.6", b"9" * 5000).replace(b"3.10", b"9" * 5000),
        "references": good + b"".join(b"k%d = %%(k%d)s\n" % (n, n + 1) for n in range(5000)),
    }
    return Corpus({"good": good}, bad, {**others, **kept("setup-cfg")})


# Signed once by tests/signing.py, as the same seed must make the same inputs.
SIGNED = HERE / "signed/bundle.json"
TRUSTED = HERE / "signed/trusted_root.json"


def signed_texts() -> Inputs:
    """Of sigstore bundles."""
    return {"good": SIGNED.read_bytes()}


def root_texts() -> Inputs:
    """Of roots of trust."""
    return {"good": TRUSTED.read_bytes()}


def manifest_texts() -> Inputs:
    """Of the manifest of compiled kernels."""
    inputs = KernelInputs(
        *("cu130", "demo", "9.0", DIGEST, "gcc 12.2", "0.1.0", "", ""), {"csrc/scale.cu": DIGEST}
    )
    objects = (CompiledObject("cu130", "csrc/scale.o", DIGEST, DIGEST),)
    manifest = dataclasses.asdict(Manifest(inputs, "1/1", True, objects))
    return {"good": json.dumps({"schema": SCHEMA, **manifest}).encode()}


def bundled_texts() -> Inputs:
    """Of the state of the bundled packages."""
    return {"good": json.dumps({"key": "k", "files": {WHEEL: DIGEST}}).encode()}


def probe_texts() -> Inputs:
    """What the probe of a smoke test prints."""
    machine = {
        **{"python": "3.12", "platform": "linux", "glibc": "2.36", "torch": "2.11.0"},
        **{"cuda": "13.0", "hip": None, "gpu": {"name": "H100", "arch": "9.0", "driver": "580"}},
    }
    imported = [{"name": "demo", "file": "/site/demo/__init__.py", "error": None}]
    return {
        "good": json.dumps({"machine": machine, "imported": imported, "site": "/site"}).encode()
    }


def answer_texts() -> Inputs:
    """What the doctor's child answers."""
    spec = {"how": "left", "file": "/site/demo/__init__.py", "folders": ["/site/demo"]}
    loaded = {"torch": True, "libraries": ["/x.so"]}
    error = {
        **{**spec, **loaded, "how": "raised", "words": ["ImportError: no"]},
        **{"missing_modules": ["x"], "unloaded": ["libx.so: no"], "where": "demo/__init__.py:3"},
    }
    status = {"package": "demo", "mode": "auto", "operators": []}
    imported = {**spec, **loaded, "how": "imported", "status": status}
    return {
        "raised": f"{json.dumps(spec)}\n{json.dumps(error)}\n".encode(),
        "imported": f"{json.dumps(spec)}\n{json.dumps(imported)}\n".encode(),
        "nested": f"{json.dumps(spec)}\n{'[' * 100_000}\n".encode(),
        "a list": b"[1]\n",
    }


def lock_texts() -> Inputs:
    """Of the packaged toolkit lock."""
    whole = data.read("toolkits.lock.json")
    small = {
        "cuda": {version: parts[:2] for version, parts in list(whole["cuda"].items())[:2]},
        "torch": dict(list(whole["torch"].items())[:2]),
    }
    return {"small": json.dumps(small).encode()}


def json_texts(name: str, right: Inputs, *others: str) -> Corpus:
    """Right texts, and texts that no JSON reader of ours takes; `others` may be right or not."""
    bad = {
        "empty": b"",
        "null": b"null",
        "number": b"5",
        "text": b'"x"',
        "list": b"[]",
        "object": b"{}",
        "nested lists": b"[" * 100_000,
        "nested objects": b'{"a":' * 100_000,
        "not a number": b"NaN",
        "digits": b"9" * 5000,
        "surrogate": b'{"file": "\\ud800"}',
        "not utf-8": b'{"file": "\xff"}',
        "key twice": b'{"schema": 1, "schema": 2}',
    }
    odd = {other: right[other] for other in others}
    right = {key: text for key, text in right.items() if key not in odd}
    return Corpus(right, bad, {**odd, **kept(name)})
