"""What people write is read in bounds: a FIFO, a device or a large file is one line."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hostile
from torchwheel.check.declared import read_declared
from torchwheel.index.withdrawals import read_withdrawals
from torchwheel.matrix.load import load
from torchwheel.scaffold.foreign import read_project
from torchwheel.text_files import MAX_BYTES, read_text, read_toml
from torchwheel_runtime.errors import UsageError

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "matrix": ("matrix.yaml", load),
    "withdrawals": ("yanked.yaml", read_withdrawals),
    "declared": ("pyproject.toml", lambda path: read_declared(path.parent)),
    "foreign": ("pyproject.toml", lambda path: read_project(path.parent)),
}
ODD: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
}


@pytest.fixture(autouse=True)
def _no_reader_waits() -> Iterator[None]:
    """End a test that waits for a FIFO."""

    def ring(*_: object) -> None:
        pytest.fail("a reader waits")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_file_is_one_line(tmp_path: Path, reader: str, odd: str) -> None:
    name, read = READERS[reader]
    ODD[odd](tmp_path / name)
    with pytest.raises(UsageError) as caught:
        read(tmp_path / name)
    found = "expected a file, found something that is no file"
    if (reader, odd) == ("foreign", "endless device"):
        stays = f"expected a link that stays in {tmp_path}, found one to /dev/zero"
        found = f"{stays}; replace it by the file"
    assert str(caught.value) == f"{tmp_path / name}: {found}"


@pytest.mark.parametrize("reader", READERS)
def test_a_large_file_is_one_line(tmp_path: Path, reader: str) -> None:
    name, read = READERS[reader]
    (tmp_path / name).write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(UsageError, match="expected at most 1024 KiB, found more"):
        read(tmp_path / name)


def test_a_path_that_no_system_takes_is_one_line() -> None:
    for path in (Path("a\0b"), Path("x" * 5000)):
        with pytest.raises(UsageError) as caught:
            read_text(path)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", hostile.LONG_KEYS)
def test_a_toml_key_of_many_parts_is_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(hostile.LONG_KEYS[name])
    with pytest.raises(UsageError, match="expected TOML, found a key of more than 16 parts"):
        read_toml(path)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + ".".join(["1"] * 2),
        'a = "' + "a." * 99 + '"',
        "a = '''" + "a." * 99 + "\n" + "a." * 99 + "'''",
        'a = """' + '\\"""' + "a." * 99 + '"""',
        "# " + "a." * 99,
        "a = [" + "1.5, " * 99 + "]",
        "\n".join(f"a{n}.b.c = {n}" for n in range(99)),
    ],
)
def test_dots_that_are_of_no_key_count_not(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    read_toml(path)
