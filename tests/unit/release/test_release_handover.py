"""What is published is what was assembled and attested, whatever another job has uploaded since."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from release_artifacts import MATRIX, Artifacts
from test_release_signed import COMMIT, EVIDENCE, REPOSITORY

import signing
from rehearsal.forge import Token
from rehearsal.toy import forge_with_gh
from torchwheel.cli import main
from torchwheel.release.folder import SUMS
from torchwheel_runtime.files import sha256

RELEASE = signing.Job(REPOSITORY, ".github/workflows/release.yml", COMMIT)
PURE = "demo-1.0.0-py3-none-any.whl"

pytestmark = pytest.mark.usefixtures("green_gates")


@dataclasses.dataclass
class Handed:
    """A release folder, and what the jobs after `assemble` know of it."""

    folder: Path
    options: dict[str, str]

    def call(self, *command: str, without: tuple[str, ...] = (), **changes: object) -> int:
        every = {**self.options, **changes}
        words = [w for k, v in every.items() if k not in without for w in (f"--{k}", str(v))]
        return main(
            [*command, *(["v1.0.0"] * (command != ("handover",))), str(self.folder), *words]
        )


@pytest.fixture
def handed(artifacts: Artifacts, root, tmp_path, monkeypatch, capsys) -> Handed:
    monkeypatch.setenv("TORCHWHEEL_TRUSTED_ROOT", str(root.trusted_root))
    artifacts.matrix.write_text(MATRIX + EVIDENCE)
    folder, output = tmp_path / "release", tmp_path / "output"
    call = ["--matrix", str(artifacts.matrix), str(artifacts.root), "--out", str(folder)]
    assert main(["assemble", *call, "--version", "v1.0.0", "--output", str(output)]) == 0
    sums = output.read_text().removeprefix("sums=").strip()
    assert sums == sha256(folder / SUMS)
    capsys.readouterr()
    bundle = sign(root, folder, RELEASE)
    options = {"sums": sums, "attestation": str(bundle), "commit": COMMIT}
    return Handed(folder, {**options, "matrix": str(artifacts.matrix)})


def sign(root: signing.Root, folder: Path, job: signing.Job) -> Path:
    """Attest what SHA256SUMS lists, as the job `attest` does."""
    bundle = folder.with_name("bundle.json")
    content = signing.statement(signing.subjects_of([], [folder / SUMS]), job)
    bundle.write_text(json.dumps(signing.bundle(root, job, content)))
    return bundle


def test_the_right_folder(handed, capsys):
    assert handed.call("handover") == 0
    count = sum(path.is_file() for path in handed.folder.rglob("*"))
    says = f"{handed.folder}: {count} files are those of SHA256SUMS"
    assert capsys.readouterr().out == f"{says}, attested by .github/workflows/release.yml\n"
    assert handed.call("handover", without=("attestation", "commit")) == 0
    assert capsys.readouterr().out == f"{says}\n"


def evil_wheel(folder: Path) -> None:
    """Another wheel with the sums of it, as a job that uploads another artifact makes it."""
    old = sha256(folder / PURE)
    for path in (folder / PURE, folder / "pypi" / PURE):
        path.unlink()
        path.write_bytes(b"evil")
    sums = folder / SUMS
    sums.write_text(sums.read_text().replace(old, sha256(folder / PURE)))


def put(name: str, data: bytes = b"evil") -> Callable[[Path], object]:
    """Another file of this name, or one more; never into a file with two names."""

    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(data)

    return damage


def without(pattern: str) -> Callable[[Path], object]:
    return lambda folder: next(folder.glob(pattern)).unlink()


def a_link(folder: Path) -> None:
    (folder / PURE).unlink()
    (folder / PURE).symlink_to(folder / "pypi" / PURE)


def local_to_upload(folder: Path) -> None:
    shutil.copy(next(folder.glob("*+cu130-*.whl")), folder / "pypi")


EVIL = "evil-1.0-py3-none-any.whl"
CUDA = "pypi/demo-1.0.0+cu130-py3-none-manylinux_2_28_x86_64.whl"
DAMAGES = {
    "evil wheel": (evil_wheel, "SHA256SUMS: expected sha256 "),
    "without sums": (without(SUMS), "SHA256SUMS: expected sha256 "),
    "other wheel": (put(PURE), f"{PURE}: expected "),
    "other upload": (put(f"pypi/{PURE}"), f"pypi/{PURE}: expected "),
    "more": (put(EVIL), f"{EVIL}: expected no such file, as SHA256SUMS says, found "),
    "more to upload": (put(f"pypi/{EVIL}"), f"pypi/{EVIL}: expected no such file, as SHA256SUMS"),
    "local to upload": (local_to_upload, f"{CUDA}: expected no such"),
    "fewer": (without("*.tar.gz"), "demo-1.0.0.tar.gz: expected "),
    "fewer to upload": (without(f"pypi/{PURE}"), f"pypi/{PURE}: expected "),
    "other record": (put(".torchwheel/pure.json", b"{}"), ".torchwheel/pure.json: expected "),
    "a link": (a_link, f"{PURE}: expected "),
}


@pytest.mark.parametrize(("damage", "says"), DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("command", ["handover", "assets", "published"])
def test_another_folder_is_refused(handed, capsys, damage, says, command):
    """In one line, before anything is asked of the forge."""
    damage(handed.folder)
    assert handed.call(command) == 1
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith(f"torchwheel: {handed.folder}/{says}")
    assert not out


@pytest.mark.parametrize("name", ["evil wheel", "other wheel", "more"])
def test_an_attestation_is_verified_without_the_hash_too(handed, capsys, name):
    """As by hand, where no job says it."""
    damage, _ = DAMAGES[name]
    damage(handed.folder)
    assert handed.call("assets", without=("sums",)) == 1
    assert capsys.readouterr().err


ATTESTATIONS = {
    "{}": (None, "bundle.json: not a sigstore bundle: "),
    "of a build": ({"workflow": ".github/workflows/wheels.yml"}, "expected a signature of release"),
    "of a smoke test": ({"workflow": ".github/workflows/smoke.yml"}, "expected a signature of rel"),
    "of any workflow": ({"workflow": "x.yml"}, "expected workflow .github/workflows/wheels.yml"),
    "of another repository": ({"repository": "https://github.com/o/x"}, "expected repository http"),
    "of another commit": ({"commit": "f" * 40}, f"expected commit {COMMIT}, found ffff"),
    "of a branch": ({"ref": "refs/heads/main"}, "expected ref refs/tags/VERSION, found refs/heads"),
}


@pytest.mark.parametrize("name", ATTESTATIONS)
@pytest.mark.parametrize("command", ["handover", "assets", "published"])
def test_another_attestation_is_refused(handed, root, capsys, name, command):
    changes, says = ATTESTATIONS[name]
    if changes is None:
        Path(handed.options["attestation"]).write_text("{}")
    else:
        sign(root, handed.folder, dataclasses.replace(RELEASE, **changes))
    assert handed.call(command) == 1
    out, err = capsys.readouterr()
    assert says in err.splitlines()[0]
    assert not out


def test_what_is_public_has_the_attestation_too(handed, capsys, tmp_path, monkeypatch):
    with forge_with_gh(tmp_path / "forge") as (forge, programs):
        forge.tags["v1.0.0"] = "0" * 40
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        monkeypatch.setenv("GH_TOKEN", forge.issue(Token({"contents": "write"}, 1, 1)))
        monkeypatch.setenv("REHEARSAL_FORGE", forge.address)
        assert handed.call("assets") == 0
        assert handed.call("published") == 0
        (release,) = forge.releases
        release.assets["attestation.sigstore.json"]["digest"] = "sha256:" + "0" * 64
        capsys.readouterr()
        assert handed.call("published") == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("torchwheel: v1.0.0: attestation.sigstore.json: expected sha256 ")
