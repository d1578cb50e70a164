"""A cached smoke environment is for the wheels that lie in pip's folders, not for their names."""

import os
import threading
import zipfile

from torchwheel.console import Quiet
from torchwheel.smoke import environment
from torchwheel.smoke.environment import (
    COMPLETE,
    _linked_wheels,
    base_environment,
    base_folder_name,
)
from torchwheel.toolkit.cuda_home import HEADER_TIME
from wheelmaker import make_wheel


def test_another_build_of_a_required_wheel_is_another_environment(tmp_path):
    wheel = tmp_path / "my_kernels-1.0-py3-none-any.whl"
    wheel.write_bytes(b"one")
    (tmp_path / "other-1.0-py3-none-any.whl").write_bytes(b"one")
    environ = {"PIP_FIND_LINKS": f"{tmp_path / 'gone'} {tmp_path}"}
    first = _linked_wheels(["my-kernels>=1.0", "/a/path", "pytest"], environ)
    assert [line.split()[0] for line in first] == [wheel.name]
    wheel.write_bytes(b"two")
    assert _linked_wheels(["my-kernels>=1.0"], environ) != first
    assert _linked_wheels(["my-kernels>=1.0"], {}) == []


def test_a_pipe_in_the_place_of_an_environment_is_not_waited_for(tmp_path, monkeypatch):
    folder = tmp_path / "smoke" / base_folder_name(["pytest"])
    folder.parent.mkdir()
    os.mkfifo(folder)

    def make_venv(path, _python):
        path.mkdir()

    monkeypatch.setattr(environment, "_make_venv", make_venv)
    monkeypatch.setattr(environment, "pip_install", lambda *_, **__: None)
    made = threading.Thread(
        target=base_environment, args=(tmp_path, ["pytest"], Quiet()), daemon=True
    )
    made.start()
    made.join(5)
    assert (folder / COMPLETE).is_file()


def test_a_package_of_the_callers_path_is_installed_too(tmp_path, monkeypatch):
    """Who uses the environment later has another PYTHONPATH, or none."""
    wheels = [
        make_wheel(tmp_path, name="demo", requires=("needed",)),
        make_wheel(tmp_path, name="needed", requires=()),
    ]
    path = tmp_path / "path"
    with zipfile.ZipFile(wheels[1]) as archive:
        archive.extractall(path)
    monkeypatch.setenv("PYTHONPATH", str(path))
    base = base_environment(tmp_path / "cache", list(map(str, wheels)), Quiet())
    assert {"demo", "needed"} <= {found.name for found in environment.site_of(base).iterdir()}


def test_environments_that_nobody_uses_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_make_venv", lambda path, _python: path.mkdir())
    monkeypatch.setattr(environment, "pip_install", lambda *_, **__: None)
    kept, unused, used = (base_environment(tmp_path, [name], Quiet()) for name in "abc")
    for folder in (unused, used):
        os.utime(folder / COMPLETE, (0, 0))
    assert base_environment(tmp_path, ["c"], Quiet()) == used
    made = base_environment(tmp_path, ["d"], Quiet())
    assert sorted(path.parent for path in tmp_path.glob(f"smoke/*/{COMPLETE}")) == sorted(
        [kept, used, made]
    )
    assert not unused.exists()
    os.utime(made / COMPLETE, (0, 0))
    made.parent.chmod(0o755)  # a cache that is shared on purpose
    base_environment(tmp_path, ["e"], Quiet())
    assert made.exists()


def test_torchs_headers_have_one_time(tmp_path):
    """gcc takes equal files of one second for one file: what it reads depends on their times."""
    files = {f"torch/include/{name}.h": b"#pragma once\n" for name in ("a", "c10/b")}
    wheel = make_wheel(tmp_path, name="torch", requires=(), files=files)
    base = base_environment(tmp_path / "cache", [str(wheel)], Quiet())
    headers = [environment.site_of(base) / name for name in files]
    assert [header.stat().st_mtime for header in headers] == [HEADER_TIME] * 2
