"""The readers that are fuzzed: each with its inputs, its mutations and its promise."""

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import fuzz_seeds as seeds
from fuzz_mutations import (
    Mutation,
    mutate_json,
    mutate_numbers,
    mutate_tar,
    mutate_text,
)
from fuzz_promise import Promise, fault_of_text
from fuzz_zip import mutate_wheel
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchwheel.check.declared import read_declared
from torchwheel.check.gates import OF_NAMES, findings_of
from torchwheel.check.inspection_text import inspection_json, inspection_text
from torchwheel.check.named_claims import case_of
from torchwheel.evidence.bundles import BundleVerifier, open_verifier
from torchwheel.evidence.files import Attestation
from torchwheel.findings import sarif_text, summary_text
from torchwheel.index.catalogue import read_catalogues, upload_times
from torchwheel.index.client import JSON
from torchwheel.index.listing import Store, index_of
from torchwheel.index.pages import index_pages
from torchwheel.index.withdrawals import Withdrawals, read_withdrawals
from torchwheel.inspect.inspection import inspect_wheel
from torchwheel.inspect.library_facts import read_targets
from torchwheel.inspect.sdist import unpack
from torchwheel.inspect.wheel import open_wheel
from torchwheel.install.choose import judge
from torchwheel.install.environment import TargetEnvironment
from torchwheel.install.page import find_page
from torchwheel.matrix.load import load
from torchwheel.pipeline import build_records
from torchwheel.pipeline.kernel_artifacts import read_artifact
from torchwheel.release.artifacts import read_artifacts
from torchwheel.release.folder import first_uploads
from torchwheel.scaffold.foreign import read_project
from torchwheel.smoke.results import record_from_files
from torchwheel_runtime import claims, data
from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.builder.objects import MANIFEST
from torchwheel_runtime.doctor import importing
from torchwheel_runtime.doctor.dist_info import read_dist_info
from torchwheel_runtime.doctor.native import provided_symbols, provided_versions
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.fetch import Answer
from torchwheel_runtime.inspect import cuda, elf, hip
from torchwheel_runtime.inspect.fatbin import read_fatbin
from torchwheel_runtime.inspect.hip import read_gpu_code
from torchwheel_runtime.inspect.window import CpuTime, Window
from torchwheel_runtime.jit.lookup import CacheEntry
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.toolkit import lock
from wheelmaker import make_wheel

PLAIN = Promise()
Read = Callable[[bytes, Path], object]
"""Gives an input to the reader; the folder is its own, and is empty or as the last call left it."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader of files that somebody else may have written.

    Attributes:
        read: calls it.
        corpus: the inputs that mutations start from.
        mutate: the mutations.
        promise: its promise.
        weight: its share of the inputs of a run.
        tolerant: it reports what is malformed and refuses nothing.
    """

    read: Read
    corpus: Callable[[], seeds.Corpus]
    mutate: Mutation
    promise: Promise = PLAIN
    weight: int = 10
    tolerant: bool = False


def _write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _matrix(content: bytes, folder: Path) -> None:
    # full.yaml has a bundled package.
    if not (folder / "bundled").exists():
        _write(folder, "bundled/pyproject.toml", b"")
    load(_write(folder, "matrix.yaml", content))


def _wheel(content: bytes, folder: Path) -> None:
    path = _write(folder, seeds.WHEEL, content)
    with open_wheel(path) as opened, opened.extract() as files:
        for member, library in files.items():
            elf.read_library(library, member)


def _anybodys(content: bytes, folder: Path) -> None:
    case = case_of(inspect_wheel(_write(folder, seeds.WHEEL, content)))
    findings = findings_of(case)
    # The reports are for a terminal, a program and a forge.
    inspection_text(case, findings)
    inspection_json(case, findings)
    results = {seeds.WHEEL: findings}
    sarif_text(results, dict.fromkeys(OF_NAMES, ""), "1")
    for line in filter(None, summary_text(results, OF_NAMES).split("\n")):
        if fault := fault_of_text(line):
            raise AssertionError(f"summary_text {fault}")


def _library(content: bytes, folder: Path) -> None:
    path = _write(folder, "library.so", content)
    # Readers that are asked one by one: each is to hold its promise, whatever another says.
    refused: TorchwheelError | None = None
    reads = (_facts_of_library, read_gpu_code, _targets, provided_versions, elf.exported_symbols)
    for read in reads:
        try:
            read(path)
        except TorchwheelError as error:
            if fault := fault_of_text(str(error)):
                raise AssertionError(f"{read.__name__} {fault}") from error
            refused = error
    if refused:
        raise refused


def _targets(path: Path) -> None:
    read_targets(path, CpuTime())


def _facts_of_library(path: Path) -> None:
    library = elf.read_library(path)
    elf.glibc_floor(library)
    elf.versions_needed(library)
    provided_symbols(path, ["f", "cudaLaunchKernel"])


def _bundle(content: bytes, _: Path) -> None:
    for entry in hip.read_bundles(Window.of_bytes(content)):
        if entry.code:
            hip.read_code_object(entry.code)


def _fat_binary(content: bytes, _: Path) -> None:
    read_fatbin(Window.of_bytes(content), CpuTime())


def _printed(content: bytes, _: Path) -> None:
    cuda.parse_symbols(content.decode("utf-8", "replace"))


def _dist_info(content: bytes, folder: Path) -> None:
    parts = (content.split(b"\n===\n") + [b"", b""])[:3]
    for name, part in zip(("METADATA", "WHEEL", "RECORD"), parts, strict=True):
        _write(folder, f"site/demo-1.0.0.dist-info/{name}", part)
    read_dist_info(folder / "site/demo-1.0.0.dist-info")


def _sdist(content: bytes, folder: Path) -> None:
    archive = _write(folder, "demo-1.0.tar.gz", content)
    target = folder / "unpacked"
    target.mkdir()
    try:
        unpack(archive, target)
        for path in target.rglob("*"):
            if not os.path.realpath(path).startswith(os.path.realpath(target)):
                raise AssertionError(f"{path} leads out")
    finally:
        shutil.rmtree(target)


def _claims(content: bytes, _: Path) -> None:
    claims.loads(content.decode("utf-8", "replace"), "torchwheel.json")


def _entry(content: bytes, _: Path) -> None:
    parse_json(content, CacheEntry, "entry.json")


def _records(content: bytes, folder: Path) -> None:
    make_wheel(folder) if not (folder / seeds.WHEEL).exists() else None
    _write(folder, f"{build_records.FOLDER}/pure.json", content)
    build_records.all_records(folder)
    build_records.load_finished(folder, "pure", "k" * 16)
    build_records.forget_record(folder, "pure")


def _artifacts(content: bytes, folder: Path) -> None:
    _write(folder, f"{build_records.FOLDER}/pure.json", content)
    _write(folder, "smoke/pure.json", content)
    read_artifacts([folder])


def _request(content: bytes, folder: Path) -> None:
    _write(folder, f"{build_records.FOLDER}/{build_records.REQUEST_FILE}", content)
    build_records.last_request(folder)


def _catalogue(content: bytes, folder: Path) -> None:
    _write(folder, "v1/catalogue.json", content)
    first_uploads((), folder / "v1", ())
    catalogues = read_catalogues([folder])
    upload_times(catalogues)
    index = index_of(catalogues, Store("https://host/{tag}"), Withdrawals())
    for page in index_pages(index):
        page.text()


def _probe(content: bytes, folder: Path) -> None:
    wheel = folder / seeds.WHEEL
    if not wheel.exists():
        make_wheel(folder)
        _write(folder, "junit.xml", b"<testsuite><testcase name='test_demo'/></testsuite>")
    record_from_files(wheel, [], _write(folder, "probe", content), folder / "junit.xml", "ab", 0)


def _junit(content: bytes, folder: Path) -> None:
    wheel = folder / seeds.WHEEL
    if not wheel.exists():
        make_wheel(folder)
        _write(folder, "probe", next(iter(seeds.probe_texts().values())))
    record_from_files(wheel, [], folder / "probe", _write(folder, "junit.xml", content), "ab", 0)


def _answers(content: bytes, _: Path) -> None:
    importing._result(importing._parse_answers(content), 0, "", 120.0)


def _lock(content: bytes, folder: Path) -> None:
    _write(folder, lock.FILE, content)
    packaged, data.FOLDER = data.FOLDER, folder
    try:
        for release in lock.locked_releases():
            lock.pinned_requirements(lock.components(release), lock.PLATFORMS[0])
        lock.torch_source("2.11")
    finally:
        data.FOLDER = packaged


def _page(kind: str, content: bytes, _: Path) -> None:
    found = find_page("https://host/index", canonicalize_name("demo"), _OnePage(kind, content))
    for candidate in found[1] if found else ():
        judge(candidate, _ENVIRONMENT, SpecifierSet())


@dataclasses.dataclass(frozen=True)
class _OnePage:
    """An index with one page."""

    kind: str
    content: bytes

    def page(self, url: str, accept: str) -> Answer | None:
        return Answer(url, self.kind, self.content) if url.endswith("/index/demo/") else None

    def file(self, url: str, target: Path, sha256: str, size: int | None) -> None:
        raise AssertionError("a page is read, no file")


_ENVIRONMENT = TargetEnvironment(
    program=Path("/venv/bin/python"),
    python="3.12.3",
    implementation="CPython",
    platform="linux_x86_64",
    tags=("cp312-cp312-manylinux_2_28_x86_64", "py3-none-any"),
    markers={"python_version": "3.12", "sys_platform": "linux"},
    glibc="2.36",
    torch=Torch("2.11.0+cu130", "13.0", None, Path("/venv/torch")),
    driver=Driver("cuda", "580.95.05", "13.0"),
    gpus=(Gpu(0, "NVIDIA H200", parse("9.0")),),
)


def _yanked(content: bytes, folder: Path) -> None:
    found = read_withdrawals(_write(folder, "yanked.yaml", content))
    found.yanked_files(())
    found.removed_files(())


def _pyproject(content: bytes, folder: Path) -> None:
    _write(folder, "pyproject.toml", content)
    read_declared(folder, "demo")
    read_project(folder, "demo")


def _setup_config(content: bytes, folder: Path) -> None:
    _write(folder, "setup.py", b"from setuptools import setup\nsetup()\n")
    _write(folder, "setup.cfg", content)
    read_project(folder, "demo")


@functools.cache
def _verifier() -> tuple[BundleVerifier, tuple[Attestation, ...]]:
    """The verifier of the signed bundle, and what that bundle attests."""
    verifier = open_verifier(str(seeds.TRUSTED))
    return verifier, verifier.read(seeds.SIGNED)


def _signed(content: bytes, folder: Path) -> None:
    verifier, genuine = _verifier()
    known = {(one.signer, one.subjects) for one in genuine}
    for one in verifier.read(_write(folder, "bundle.sigstore.json", content)):
        if (one.signer, one.subjects) not in known:
            raise AssertionError(f"believes another signer or other files: {one.signer}")


def _trusted_root(content: bytes, folder: Path) -> None:
    open_verifier(str(_write(folder, "trusted_root.json", content))).read(seeds.SIGNED)


def _manifest(content: bytes, folder: Path) -> None:
    read_artifact(_write(folder, MANIFEST, content).parent)


def _json(
    read: Read,
    name: str,
    right: Callable[[], seeds.Inputs],
    *others: str,
    promise: Promise = PLAIN,
    tolerant: bool = False,
) -> Target:
    corpus = functools.cache(lambda: seeds.json_texts(name, right(), *others))
    return Target(read, corpus, mutate_json, promise, tolerant=tolerant)


def _junit_texts() -> seeds.Corpus:
    case = (
        b"<testcase classname='a' name='b' time='0.5'><failure message='no'>x</failure></testcase>"
    )
    entities = b"".join(b"<!ENTITY %c '%s'>" % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
    good = b"<testsuites><testsuite>" + case * 2 + b"</testsuite></testsuites>"
    hostile = {
        "entities": b"<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'>" + entities + b"]><x>&j;</x>",
        "nested": b"<a>" * 100_000,
    }
    return seeds.Corpus({"good": good}, hostile, seeds.kept("junit"))


_WHOLE = Promise(seconds=20, mib=1024)
"""Of a whole wheel or library: `check` holds 60 s and 1 GiB."""
_LINES = Promise(lines=True)
_VALUE_ERROR = Promise(other_errors=(ValueError,))

TARGETS: Mapping[str, Target] = {
    "matrix": Target(_matrix, functools.cache(seeds.matrices), mutate_text, _LINES, weight=4),
    "wheel": Target(_wheel, functools.cache(seeds.wheels), mutate_wheel, _WHOLE, weight=30),
    "inspect": Target(
        _anybodys, functools.cache(seeds.anybodys_wheels), mutate_wheel, _WHOLE, tolerant=True
    ),
    "elf": Target(_library, functools.cache(seeds.libraries), mutate_numbers, _WHOLE, weight=20),
    "bundle": Target(_bundle, functools.cache(seeds.bundles), mutate_numbers, _WHOLE, weight=20),
    "fatbin": Target(
        _fat_binary, functools.cache(seeds.fat_binaries), mutate_numbers, _WHOLE, weight=20
    ),
    "cuobjdump": Target(_printed, functools.cache(seeds.printed), mutate_text),
    "dist-info": Target(
        _dist_info, functools.cache(seeds.dist_info_files), mutate_text, tolerant=True
    ),
    "sdist": Target(_sdist, functools.cache(seeds.sdists), mutate_tar, Promise(seconds=20), 4),
    "claims": _json(_claims, "claims", seeds.claims_texts),
    "entry": _json(_entry, "entry", seeds.entry_texts, promise=_VALUE_ERROR),
    "record": _json(
        *(_records, "record", seeds.record_texts),
        *("file is a number", "file is the folder above"),
        tolerant=True,
    ),
    "artifact": _json(_artifacts, "artifact", seeds.artifact_texts, tolerant=True),
    "request": _json(_request, "request", seeds.request_texts, tolerant=True),
    "catalogue": _json(_catalogue, "catalogue", seeds.catalogue_texts, promise=_LINES),
    "probe": _json(_probe, "probe", seeds.probe_texts),
    "junit": Target(_junit, functools.cache(_junit_texts), mutate_text, weight=4),
    "answers": _json(_answers, "answers", seeds.answer_texts, "nested", "a list", tolerant=True),
    "lock": _json(_lock, "lock", seeds.lock_texts),
    "page": _json(
        functools.partial(_page, JSON),
        *("page", seeds.page_texts, "many digits in a range", "many digits in a name"),
    ),
    "page-html": Target(
        functools.partial(_page, "text/html"), functools.cache(seeds.html_pages), mutate_text
    ),
    "yanked": Target(
        _yanked, functools.cache(seeds.withdrawal_files), mutate_text, _LINES, weight=4
    ),
    "pyproject": Target(_pyproject, functools.cache(seeds.pyprojects), mutate_text),
    "setup-cfg": Target(_setup_config, functools.cache(seeds.setup_configs), mutate_text),
    "signed": _json(_signed, "signed", seeds.signed_texts),
    "trusted-root": _json(_trusted_root, "trusted-root", seeds.root_texts),
    "manifest": _json(_manifest, "manifest", seeds.manifest_texts),
}
