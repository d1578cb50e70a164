"""A cached smoke environment is for the wheels that lie in pip's folders, not for their names."""

import os
import threading

from torchwheel.console import Quiet
from torchwheel.smoke import environment
from torchwheel.smoke.environment import (
    COMPLETE,
    _linked_wheels,
    base_environment,
    base_folder_name,
)


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
