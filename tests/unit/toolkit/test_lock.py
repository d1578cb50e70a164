"""Pinned toolkits and headers."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.pip import pip_reason
from torchwheel_runtime.toolkit import headers, index, lock
from torchwheel_runtime.toolkit.headers import extract_verified
from torchwheel_runtime.toolkit.host import HostCompiler, check_bounds
from torchwheel_runtime.toolkit.index import IndexedFile
from torchwheel_runtime.toolkit.provision import pypi_identity

CUDA = sorted(lock.read_lock().cuda)


@pytest.mark.parametrize("version", CUDA)
def test_every_component_is_of_one_release_with_hashes_for_every_platform(version):
    pinned = {c.project: c for c in lock.components(version)}
    assert set(pinned) == {*lock.ONE_RELEASE, *lock.OTHER_PARTS}
    assert len({pinned[name].version for name in lock.ONE_RELEASE}) == 1
    for component in pinned.values():
        assert set(component.sha256) == set(lock.PLATFORMS)
        assert all(re.fullmatch(r"[0-9a-f]{64}", h) for h in component.sha256.values())
        assert component.version.startswith(f"{version}.")


def test_an_unknown_release_says_what_there_is_and_what_to_run():
    with pytest.raises(UsageError, match=r"CUDA 99\.0 is not in the toolkit lock .*lock 99\.0"):
        lock.components("99.0")
    with pytest.raises(UsageError, match=r"torch 1\.0 has no header source"):
        lock.torch_source("1.0")


def test_a_platform_without_a_hash_is_one_printable_line():
    component = lock.Component("nvidia-cuda-crt", "13.0.88", {"linux_x8\u20286_64": "0" * 64})
    with pytest.raises(TorchwheelError) as refused:
        component.hash_for("linux_x86_64")
    assert str(refused.value) == (
        'toolkits.lock.json: "nvidia-cuda-crt": expected a sha256 for linux_x86_64, found '
        r'"linux_x8\u20286_64"; renew the lock'
    )


def test_the_folder_is_named_by_content():
    names = {pypi_identity(lock.components(v), p) for v in CUDA for p in lock.PLATFORMS}
    assert len(names) == len(CUDA) * len(lock.PLATFORMS)


def record_of(files: dict[str, bytes]) -> bytes:
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join(rows).encode()


def source_of(record: bytes) -> lock.TorchSource:
    return lock.TorchSource("9.9", "linux_x86_64", "", hashlib.sha256(record).hexdigest())


def test_headers_are_written_only_if_their_record_and_the_lock_agree(tmp_path):
    files = {"torch/include/a.h": b"a", "torch/include/d/b.h": b"b"}
    record = record_of(files)
    served = {**files, "torch-9.9.dist-info/RECORD": record}
    extract_verified(list(files), served.__getitem__, source_of(record), tmp_path)
    assert (tmp_path / "torch/include/d/b.h").read_bytes() == b"b"
    served["torch/include/d/b.h"] = b"bent"
    with pytest.raises(TorchwheelError, match=r"hash mismatch: torch 9\.9: torch/include/d/b\.h"):
        extract_verified(list(files), served.__getitem__, source_of(record), tmp_path)
    with pytest.raises(TorchwheelError, match="its RECORD is not the one in the lock"):
        extract_verified(list(files), served.__getitem__, source_of(b"other"), tmp_path)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("torch/include/../../../../a.h", "leaves its folder"),
        ("{folder}/a.h", "leaves its folder"),
        ("torch/include/..", "names no file"),
    ],
)
def test_a_header_that_leaves_its_folder_is_refused(tmp_path, name, why):
    files = {"torch/include/a.h": b"a", name.format(folder=tmp_path): b"a"}
    record = record_of(files)
    served = {**files, "torch-9.9.dist-info/RECORD": record}
    with pytest.raises(TorchwheelError, match=why):
        extract_verified(list(files), served.__getitem__, source_of(record), tmp_path / "deep")


def test_a_compiler_out_of_bounds_is_named_with_what_is_taken():
    bounds = {"gcc": ">=6,<16", "clang": ">=7,<21"}
    check_bounds(HostCompiler(Path("/g++"), "gcc", "12.2.0"), bounds, "CUDA 13.0")
    with pytest.raises(TorchwheelError, match=r"/g\+\+ is gcc 16\.1\.0; CUDA 13\.0 takes gcc >=6"):
        check_bounds(HostCompiler(Path("/g++"), "gcc", "16.1.0"), bounds, "CUDA 13.0")


def test_pips_words_become_one_line():
    mismatch = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If ...
    nvidia-nvvm==13.0.88 from file.whl:
        Expected sha256 aaaa
             Got        bbbb
"""
    assert "hash mismatch" in pip_reason(mismatch, "x")
    assert "bbbb" in pip_reason(mismatch)
    assert pip_reason("x\nERROR: No matching distribution").startswith("No matching distribution")
    assert pip_reason("ERROR: no https://me:word@host/x") == "no https://****@host/x"
    assert "pip said nothing" in pip_reason("")


class Archive:
    """A torch wheel behind an address, as the index has it."""

    def __init__(self, files):
        self.files = files

    def __call__(self, url):
        return self

    def members(self, wanted):
        return [name for name in self.files if wanted(name)]

    def fetch(self, names):
        assert names, "nothing to fetch"

    def read(self, name):
        return self.files[name]


@pytest.fixture
def served(monkeypatch):
    """`served(files)`: the index has a torch 9.9 with these files; returns its lock entry."""

    def serve(files):
        record = record_of(files)
        source = source_of(record)
        monkeypatch.setattr(
            headers,
            "find_files",
            lambda *_: [IndexedFile("torch", "9.9", "http://t/t.whl", source.sha256)],
        )
        monkeypatch.setattr(
            headers, "RemoteArchive", Archive({**files, "torch-9.9.dist-info/RECORD": record})
        )
        monkeypatch.setattr(headers, "torch_source", lambda minor: source)

    return serve


def test_a_torchs_folder_has_its_headers_and_what_says_its_abi(served, tmp_path):
    config = "torch/share/cmake/Torch/TorchConfig.cmake"
    served({"torch/include/a.h": b"a", config: b"abi", "torch/lib/libtorch.so": b"large"})
    root = headers.torch_headers("9.9", tmp_path, Quiet())
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert found == {"torch/include/a.h", config}


def test_the_headers_of_a_torch_that_is_not_locked_are_looked_up_once(
    served, tmp_path, monkeypatch
):
    files = {"torch/include/a.h": b"a", "torch/share/cmake/Torch/TorchConfig.cmake": b"abi"}
    served(files)
    asked = []

    def look_up(version):
        asked.append(version)
        return source_of(record_of(files))

    monkeypatch.setattr(headers, "torch_source", lock.torch_source)
    monkeypatch.setattr(headers, "look_up_torch", look_up)
    for _ in range(2):
        root = headers.torch_headers("9.9", tmp_path, Quiet())
        assert (root / "torch/include/a.h").read_bytes() == b"a"
    assert asked == ["9.9.*"]


def test_a_torch_of_other_bytes_than_the_locks_is_not_read(tmp_path, served, monkeypatch):
    served({"torch/include/a.h": b"a"})
    other = IndexedFile("torch", "9.9", "http://t/t.whl", "0" * 64)
    monkeypatch.setattr(headers, "find_files", lambda *_: [other])
    with pytest.raises(TorchwheelError, match=r"the index has torch 9\.9 with sha256 0000"):
        headers.torch_headers("9.9", tmp_path, Quiet())


def test_a_wheel_of_other_bytes_than_the_locks_is_refused_though_pip_took_it(tmp_path, monkeypatch):
    monkeypatch.setattr(
        index, "run_pip", lambda *_, **__: (tmp_path / "a.whl").write_bytes(b"bent")
    )
    with pytest.raises(TorchwheelError, match="the files are not those of the lock"):
        index.download({"a==1": hashlib.sha256(b"right").hexdigest()}, tmp_path, [], "downloading")


def test_a_wheel_without_headers_is_named_and_leaves_nothing(served, tmp_path):
    served({"torch/lib/libtorch.so": b"large"})
    with pytest.raises(TorchwheelError, match=r"torch 9\.9: its wheel holds no headers"):
        headers.torch_headers("9.9", tmp_path, Quiet())
    assert not [path for path in (tmp_path / "torch").iterdir() if path.is_dir()]


@pytest.mark.parametrize("minor", lock.read_lock().torch)
def test_every_torch_is_locked_by_its_own_release(minor):
    source = lock.torch_source(minor)
    assert source.version.startswith(f"{minor}.")
    assert re.fullmatch(r"[0-9a-f]{64}", source.record_sha256)
