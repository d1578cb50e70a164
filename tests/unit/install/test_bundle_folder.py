"""A bundle for a machine without a network: what is in it, who may use it, and what is refused."""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from install_cases import ENVIRONMENT, environment

import signing
import wheelmaker
from torchwheel.cli import main
from torchwheel.install.attestation import Trust
from torchwheel.install.bundle import (
    FILE,
    Bundle,
    BundledWheel,
    BundleFetch,
    machine_of,
    read_bundle,
    write_bundle,
)
from torchwheel.install.downloaded import read_metadata
from torchwheel.install.offline import with_downloads
from torchwheel.install.page import wheel_of_file
from torchwheel.install.plan import InstallPlan, choose, parse_wanted, plan
from torchwheel_runtime.arch.devices import Gpu
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import own_temporary_files

TAG = "py3-none-manylinux_2_28_x86_64"
STABLE = wheelmaker.stable(archs=("9.0",))
MACHINE = machine_of(ENVIRONMENT)
JOB = signing.Job(
    "https://github.com/owner/demo",
    ".github/workflows/release.yml",
    "0123456789abcdef0123456789abcdef01234567",
)
Sign = Callable[[Path], bytes | None]


def carry(folder: Path, *, sign: Sign = lambda _: None, addon: bool = True) -> tuple[Path, str]:
    """A bundle of demo, and of the addon that it requires; and the hash of its manifest."""
    made = {"version": "1.0+cu130", "tag": TAG, "claims": STABLE}
    demo = wheelmaker.make_wheel(folder, requires=["torch>=2.11", "addon>=1"], **made)  # type: ignore[arg-type]
    own = wheel_of_file(demo)
    signed = BundledWheel(own, demo, read_metadata(demo, own).claims, sign(demo))
    other = wheelmaker.make_wheel(folder, name="addon", version="1.2", claims=None, requires=())
    more = [BundledWheel(wheel_of_file(other), other)] if addon else []
    tests = folder / "smoke"
    tests.mkdir(exist_ok=True)
    (tests / "test_demo.py").write_text("def test_demo():\n    pass\n")
    target = folder / "carried"
    digest = write_bundle(target, MACHINE, ["demo==1.0+cu130"], [signed], more, tests)
    return target, digest


def planned(bundle: Bundle, trust: Trust | None = None) -> InstallPlan:
    """What an installation from the bundle would bring."""
    fetch, wanted = BundleFetch(bundle), parse_wanted(bundle.manifest.projects[0])
    first = choose(bundle.index, wanted, ENVIRONMENT, fetch).accepted[0]
    return plan(bundle.index, first, ENVIRONMENT, fetch, trust or Trust())


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path) -> Any:
    """After pytest has made its own folder."""
    with own_temporary_files():
        yield


def test_it_brings_what_was_put_into_it(tmp_path: Path) -> None:
    folder, digest = carry(tmp_path)
    bundle = read_bundle(folder, digest)
    assert [*bundle.manifest.files] == [
        "index/addon/addon-1.2-py3-none-any.whl",
        "index/addon/index.json",
        f"index/demo/demo-1.0+cu130-{TAG}.whl",
        "index/demo/index.json",
        "tests/test_demo.py",
    ]
    assert bundle.manifest.others == ("addon",)
    made = planned(bundle)
    assert [one.path.name for one in made.downloads] == [
        f"demo-1.0+cu130-{TAG}.whl",
        "addon-1.2-py3-none-any.whl",
    ]
    assert made.others == ()
    assert made.downloads[0].wheel.described
    installed = with_downloads(environment(installed={"Addon": "0.1"}), made.downloads).installed
    assert installed == {"demo": "1.0+cu130", "addon": "1.2"}
    BundleFetch(bundle).copy_tests(tmp_path / "copied")
    assert (tmp_path / "copied" / "test_demo.py").read_text().startswith("def test_demo")
    # A requirement that is in neither is seen before anything is installed.
    folder, _ = carry(tmp_path, addon=False)
    assert [str(one) for one in planned(read_bundle(folder)).others] == ["addon>=1"]


def manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Another manifest."""

    def of(folder: Path) -> None:
        content = json.loads((folder / FILE).read_text())
        change(content)
        (folder / FILE).write_text(json.dumps(content))

    return of


def page(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Another page of demo, which the manifest names as it is."""

    def of(folder: Path) -> None:
        path = folder / "index/demo/index.json"
        content = json.loads(path.read_text())
        change(content["files"][0])
        text = json.dumps(content).encode()
        path.write_bytes(text)
        fact = {"size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        manifest(lambda one: one["files"].update({"index/demo/index.json": fact}))(folder)

    return of


def name_file(name: str) -> Callable[[Path], None]:
    return manifest(lambda content: content["files"].update({name: {"size": 1, "sha256": "ab"}}))


def linked(folder: Path) -> None:
    path = folder / WHEEL
    path.rename(folder.parent / "elsewhere.whl")
    path.symlink_to(folder.parent / "elsewhere.whl")


def piped(folder: Path) -> None:
    (folder / WHEEL).unlink()
    os.mkfifo(folder / WHEEL)


WHEEL = f"index/demo/demo-1.0+cu130-{TAG}.whl"
AGAIN = "; copy the bundle again"
IN_IT = f"{FILE}: files: expected a path in it, found "
HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "changed": (
        lambda f: (f / WHEEL).write_bytes((f / WHEEL).read_bytes()[:-1] + b"x"),
        f"{WHEEL}: expected sha256 ",
    ),
    "truncated": (
        lambda f: (f / WHEEL).write_bytes((f / WHEEL).read_bytes()[:100]),
        f"{WHEEL}: expected ",
    ),
    "missing": (lambda f: (f / WHEEL).unlink(), f"{WHEEL}: expected a file, found none{AGAIN}"),
    "a test changed": (
        lambda f: (f / "tests/test_demo.py").write_text("import evil                   \n    \n"),
        "tests/test_demo.py: expected ",
    ),
    "an extra file": (
        lambda f: (f / "tests/conftest.py").touch(),
        f"tests/conftest.py: expected files of {FILE} alone, found it{AGAIN}",
    ),
    "an extra link": (
        lambda f: (f / "tests/more").symlink_to("/etc"),
        f"tests/more: expected files of {FILE} alone, found it",
    ),
    "an extra folder": (
        lambda f: (f / "tests/more").mkdir(),
        f"tests/more: expected files of {FILE} alone, found it",
    ),
    "a link for a folder": (
        lambda f: (shutil.move(f / "tests", f.parent), (f / "tests").symlink_to("../tests")),
        f"tests: expected files of {FILE} alone, found it",
    ),
    "a link to the file": (linked, f"{WHEEL}: expected a file, found a link, folder or device"),
    "a pipe": (piped, f"{WHEEL}: expected a file, found a link, folder or device"),
    "a path out of it": (name_file("../secret"), f'{IN_IT}"../secret"{AGAIN}'),
    "a path inside that leads out": (name_file("tests/../../x"), f'{IN_IT}"tests/../../x"'),
    "an absolute path": (name_file("/etc/passwd"), f'{IN_IT}"/etc/passwd"'),
    "itself": (name_file(FILE), f'{IN_IT}"{FILE}"'),
    "a path of two forms": (name_file("tests//x"), f'{IN_IT}"tests//x"'),
    "a path that moves the cursor": (name_file("\x1b[2J"), f'{IN_IT}"\\u001b[2J"'),
    "a file for a folder": (name_file("tests"), "tests: expected a file, found a link, folder"),
    "nested deep": (
        lambda f: (f / FILE).write_text('{"a":' * 10_000 + "1" + "}" * 10_000),
        f"{FILE}: expected at most 32 levels, found more{AGAIN}",
    ),
    "no JSON": (lambda f: (f / FILE).write_text("{"), f"{FILE}: expected JSON, found at line 1"),
    "another schema": (
        manifest(lambda one: one.update(schema=2)),
        f"{FILE}: expected schema 1, found 2",
    ),
    "a size that is none": (
        manifest(lambda one: one["files"][WHEEL].update(size="1")),
        f"{FILE}: files[{json.dumps(WHEEL)}].size: expected a whole number",
    ),
    "no manifest": (lambda f: (f / FILE).unlink(), "expected a bundle: "),
    "a page that leads away": (
        page(lambda one: one.update(url="https://host/demo.whl")),
        'expected a file of the bundle, found "https://host/demo.whl"',
    ),
    "a page that leads to a file of the machine": (
        page(lambda one: one.update(url="file:///etc/passwd")),
        'expected a file of the bundle, found "file:///etc/passwd"',
    ),
    "a page with another hash": (
        page(lambda one: one.update(hashes={"sha256": "0" * 64})),
        f"expected sha256 {'0' * 64}, as the index says, found ",
    ),
    "a page that needs nothing": (
        page(lambda one: one["_torchwheel"]["needs"].update(kernels=[])),
        "expected claims as the index says, found others",
    ),
    "no project": (
        manifest(lambda one: one.update(projects=["nothing==1"])),
        "expected the project nothing, found none",
    ),
    "a project that is none": (
        manifest(lambda one: one.update(projects=["--index-url=https://host"])),
        'expected e.g. "demo" or "demo==1.0.0", found "--index-url=https://host"',
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_anything_else_is_one_line(tmp_path: Path, kind: str) -> None:
    bend, says = HOSTILE[kind]
    folder, _ = carry(tmp_path)
    bend(folder)
    with pytest.raises(TorchwheelError) as caught:
        planned(read_bundle(folder))
    assert says in str(caught.value).replace("\\/", "/")
    assert str(caught.value).isprintable()


def test_the_manifest_is_the_one_that_was_meant(tmp_path: Path) -> None:
    """All files and the manifest may be changed together: its hash tells."""
    folder, digest = carry(tmp_path)
    assert read_bundle(folder, digest.upper())
    page(lambda one: one.update(size=5))(folder)
    assert read_bundle(folder)
    with pytest.raises(TorchwheelError, match=rf"{FILE}: expected sha256 {digest}, found"):
        read_bundle(folder, digest)


def test_what_is_changed_after_the_look_is_refused(tmp_path: Path) -> None:
    folder, _ = carry(tmp_path)
    for name, use in (
        ("index/demo/index.json", planned),
        (WHEEL, planned),
        ("tests/test_demo.py", lambda one: BundleFetch(one).copy_tests(tmp_path / "copied")),
    ):
        bundle, content = read_bundle(folder), (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + b"\t")
        with pytest.raises(TorchwheelError, match=r"was changed meanwhile|expected sha256"):
            use(bundle)
        (folder / name).write_bytes(content)


OTHER_GPU = (*ENVIRONMENT.gpus, Gpu(1, "NVIDIA A100", parse("8.0")))


@pytest.mark.parametrize(
    ("here", "taken"),
    [
        ({}, True),
        ({"python": "3.12.9"}, True),
        ({"glibc": "2.39"}, True),
        ({"python": "3.13.0"}, False),
        ({"implementation": "PyPy"}, False),
        ({"tags": ("cp312-cp312t-linux_x86_64",)}, False),
        ({"platform": "linux_aarch64"}, False),
        ({"glibc": "2.28"}, False),
        ({"glibc": None}, False),
        ({"torch": "2.12.0+cu130"}, False),
        ({"torch": "2.11.0+cu126"}, False),
        ({"torch": None}, False),
        ({"gpus": ()}, False),
        ({"gpus": OTHER_GPU}, False),
    ],
)
def test_the_machine_that_it_is_for(here: dict[str, Any], taken: bool) -> None:
    torch = {"torch": here["torch"]} if "torch" in here else {}
    others = {name: value for name, value in here.items() if name != "torch"}
    assert MACHINE.takes(machine_of(environment(**torch, **others))) == taken
    assert not dataclasses.replace(MACHINE, glibc="9" * 5000).takes(MACHINE)
    # Without a GPU the one who made it said nothing of GPUs: each wheel is judged where it goes.
    for_any = dataclasses.replace(MACHINE, gpus=())
    assert for_any.takes(machine_of(dataclasses.replace(ENVIRONMENT, gpus=OTHER_GPU)))


def test_signatures_come_with_it(tmp_path: Path, root: Any) -> None:
    def sign(wheel: Path) -> bytes:
        job = dataclasses.replace(JOB, ref="refs/tags/v1.0")
        made = signing.bundle(root, job, signing.statement(signing.subjects_of([wheel]), job))
        return json.dumps(made).encode()

    folder, _ = carry(tmp_path, sign=sign)
    bundle = read_bundle(folder)
    trust = Trust("owner/demo", str(root.trusted_root), unsigned=frozenset({"addon"}))
    signatures = [one.signature.ok for one in planned(bundle, trust).downloads]
    assert signatures == [True, False]
    # Nobody has signed the addon: only the hash of the manifest can stand for it.
    with pytest.raises(TorchwheelError, match=r"^addon-1.2.*: expected an attestation by owner"):
        planned(bundle, dataclasses.replace(trust, unsigned=frozenset()))
    with pytest.raises(TorchwheelError, match=r"^demo-1.0.*expected "):
        planned(bundle, dataclasses.replace(trust, repository="other/demo"))
    folder, _ = carry(tmp_path)
    with pytest.raises(TorchwheelError, match=r"^demo-1.0.*: expected an attestation by owner"):
        planned(read_bundle(folder), trust)


def test_a_folder_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    folder, digest = carry(tmp_path)
    # A bundle is replaced; another folder is not.
    assert carry(tmp_path) == (folder, digest)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(TorchwheelError, match="mine: expected a new name or a bundle, found"):
        write_bundle(tmp_path / "mine", MACHINE, [], [], [], None)
    missing = BundledWheel(wheel_of_file(folder / WHEEL), tmp_path / "missing.whl")
    with pytest.raises(FileNotFoundError):
        write_bundle(folder, MACHINE, [], [missing], [], None)
    assert read_bundle(folder, digest)
    older = wheelmaker.make_wheel(tmp_path, name="addon", version="1.1", claims=None, requires=())
    newer = tmp_path / "addon-1.2-py3-none-any.whl"
    both = [BundledWheel(wheel_of_file(one), one) for one in (older, newer)]
    with pytest.raises(TorchwheelError, match=r"^addon: expected one wheel of it, found addon-1"):
        write_bundle(folder, MACHINE, [], both, [], None)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("--from x demo", "--from: expected no name, --index, --tests or --no-deps"),
        ("--from x --index file:///y", "--from: expected no name"),
        ("--from x", "x: expected a bundle: "),
        ("--bundle x", "--bundle: expected projects, found none; name them"),
        ("--bundle x demo --tests nowhere", "nowhere: expected a folder of smoke tests, found"),
        ("--bundle x demo", "demo: expected --index URL, found none"),
        ("demo --sha256 ab", "--sha256 goes with --from FOLDER"),
        ("demo --tests x", "--tests goes with --bundle FOLDER"),
        ("--bundle x --from y", "--from: not allowed with argument --bundle"),
        ("", "expected one project, found none"),
    ],
)
def test_a_wrong_call_is_one_line(
    call: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        assert main(["install", *call.split()]) == 2
    except SystemExit as ended:
        assert ended.code == 2  # noqa: PT017 - argparse ends some
    said = " ".join(capsys.readouterr().err.split())
    assert says in said
    assert not [*tmp_path.iterdir()]
