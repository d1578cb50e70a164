"""Reading a dist-info folder: right, malformed and hostile."""

import os

import pytest
from dist_infos import put

import wheelmaker
from torchwheel_runtime.doctor import dist_info

LONG = wheelmaker.metadata("demo", "1.0.0", [f"torch>={'9' * 5000}"])


def test_a_complete_folder_has_no_problems(tmp_path):
    info = dist_info.read_dist_info(put(tmp_path))
    assert (info.name, info.version, info.torch) == ("demo", "1.0.0", ">=2.11")
    assert info.packages == ("demo",)
    assert {str(tag) for tag in info.tags} == {"py3-none-linux_x86_64"}
    assert info.claims == wheelmaker.stable()
    assert info.problems == ()


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"METADATA": None}, "demo-1.0.0.dist-info has no METADATA"),
        ({"METADATA": b"\xff\xfe"}, "METADATA cannot be read"),
        ({"METADATA": LONG}, 'METADATA requires "torch>=9'),
        ({"RECORD": None}, "has no RECORD"),
        ({"RECORD": b"a,b\n"}, "RECORD line 1: 3 fields expected, got 2"),
        ({"RECORD": b"a\0.so,,\n"}, 'RECORD names "a\\u0000.so", which no file can be named'),
        ({"RECORD": b"demo/gone.py,,\n"}, '"demo/gone.py" is gone'),
        ({"RECORD": b"demo/_C.so,sha256=x,99\n"}, '"demo/_C.so" has 4 bytes; 99 were installed'),
        ({"WHEEL": b"Tag: nonsense\n"}, 'WHEEL: "nonsense" is not a tag'),
        ({"torchwheel__json": b"{"}, "torchwheel.json: not a torchwheel claims file"),
        ({"torchwheel__json": b'{"schema": 7}'}, "expected schema 4, found 7"),
        ({"torchwheel__json": b"\xff"}, "torchwheel.json cannot be read"),
    ],
)
def test_malformed_files_are_reported_and_the_rest_is_read(tmp_path, files, problem):
    info = dist_info.read_dist_info(put(tmp_path, **files))
    assert len(info.problems) == 1
    assert problem in info.problems[0]
    assert (info.name, info.version) == ("demo", "1.0.0")


def irregular(folder, name, kind):
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "name", ["METADATA", "RECORD", "WHEEL", "top_level.txt", "entry_points.txt"]
)
def test_what_is_no_file_is_told_once_and_not_read(tmp_path, name, kind):
    folder = put(tmp_path)
    irregular(folder, name, kind)
    info = dist_info.read_dist_info(folder)
    assert (info.name, info.version) == ("demo", "1.0.0")
    assert (info.irregular, info.problems) == ((folder / name,), ())
    waited_for = [folder / name] if name == "entry_points.txt" else []
    assert dist_info.irregular_entry_points([folder]) == waited_for


def test_a_name_cannot_make_a_command_another(tmp_path):
    folder = put(tmp_path, METADATA=b"Name: demo; rm -rf ~\nVersion: -1 $(x)\n")
    info = dist_info.read_dist_info(folder)
    assert (info.name, info.version) == ("demo__rm_-rf__", "1___x_")


def test_files_that_are_gone_are_counted(tmp_path):
    info = dist_info.read_dist_info(
        put(tmp_path, RECORD=b"a.py,,\nb.py,,\nc.py,,\n__pycache__/a.pyc,,\n")
    )
    assert info.problems == ('"a.py" is gone, and 2 more like it',)


@pytest.mark.parametrize(
    ("requires", "torch"),
    [
        (("torch",), ""),
        (("Torch (>=2.0)",), ">=2.0"),
        (("torchvision>=1",), None),
        (("~~~", "torch==2.6.*; python_version > '3'"), "==2.6.*"),
        (("torch>=2; extra == 'dev'",), None),
        (("torch<2; python_version < '3'", "torch>=2.6", "torch<3"), "<3,>=2.6"),
    ],
)
def test_what_it_requires_of_torch(tmp_path, requires, torch):
    metadata = wheelmaker.metadata("demo", "1.0.0", requires)
    assert dist_info.read_dist_info(put(tmp_path, METADATA=metadata)).torch == torch


def test_its_own_package_comes_first_and_private_ones_last(tmp_path):
    record = b"".join(b"%s/__init__.py,,\n" % name for name in (b"_demo", b"another", b"demo"))
    folder = put(tmp_path, RECORD=record + b"fast.cpython-312-x86_64-linux-gnu.so,,\n")
    assert dist_info.read_dist_info(folder).packages == ("demo", "another", "fast", "_demo")


def test_an_editable_installation_names_its_packages_in_top_level(tmp_path):
    folder = put(tmp_path, RECORD=b"", top_level__txt=b"demo\n_extra\n")
    assert dist_info.read_dist_info(folder).packages == ("demo", "_extra")


def test_a_file_that_may_not_be_read(tmp_path):
    folder = put(tmp_path, METADATA=None)
    os.mkfifo(folder / "unrelated")
    (folder / "METADATA").mkdir()
    (problem,) = dist_info.read_dist_info(folder).problems
    assert "METADATA cannot be read" in problem
