"""What is known of a library's GPU code that cannot be read."""

import pytest
from doctor_cases import case, native, package

from elfmaker import make_elf
from torchwheel.arch.model import parse
from torchwheel.doctor import native as native_
from torchwheel.doctor.loader import Loader
from torchwheel.doctor.native import claimed_code, read_native
from torchwheel.doctor.verdict import judge
from torchwheel.errors import TorchwheelError
from torchwheel.inspect.window import CpuTime
from wheelmaker import PURE, stable, universal

PROBLEM = "byte 16: GPU code of kind 8; 1 (PTX) or 2 (ELF) expected"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Reads the library of a wheel with these claims."""

    def unreadable(_, cpu):
        raise TorchwheelError(PROBLEM)

    monkeypatch.setattr(native_, "read_gpu_code", unreadable)
    path = tmp_path / "demo" / "_C.so"
    path.parent.mkdir()
    path.write_bytes(make_elf(symbols=("f",)))

    def read(claims):
        return read_native(path, tmp_path, Loader(path, None, {}), claims, CpuTime(), loaded=True)

    return read


def test_it_is_what_the_wheel_claims(library):
    found = library(stable(archs=("8.0", "9.0+PTX")))
    assert (found.archs, found.ptx) == ((parse("8.0"), parse("9.0")), (parse("9.0"),))
    assert (found.backend, found.code_problem) == ("cuda", PROBLEM)
    assert library(None).code == ()


def test_of_a_universal_wheel_it_is_that_of_the_librarys_part():
    claims = universal(("cuda 13.0", "rocm 7.2"))
    files = [part.file for part in claims.parts]
    kinds = [[module.kind for module in claimed_code(claims, file)] for file in files]
    assert kinds == [["sass"], ["hsaco"], [], []]
    assert claimed_code(PURE, "demo/_C.so") == ()


def test_so_a_gpu_without_code_is_still_found():
    code = claimed_code(stable(archs=("8.0",)), "demo/_C.so")
    unread = native(code=code, code_problem=PROBLEM)
    verdict = judge(case(package(natives=(unread,))))
    assert "found 8.0" in verdict.says
