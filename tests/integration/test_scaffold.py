"""A new extension, as `torchwheel new` writes it, built and tried."""

import zipfile

import pytest

pytestmark = pytest.mark.integration


def test_a_new_extension_builds_is_tried_and_indexed(torchwheel, links, tmp_path):
    made = torchwheel("new", "my-kernels", "--folder", tmp_path, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[0] == f"{tmp_path / 'my-kernels'}: written. Next:"
    folder = tmp_path / "my-kernels"
    # Each older torch is compiled alike: one of the five, which is the one with old strings.
    matrix = folder / "matrix.yaml"
    text = matrix.read_text()
    assert '["2.6", "2.7", "2.8", "2.9", "2.10"]' in text
    matrix.write_text(text.replace('["2.6", "2.7", "2.8", "2.9", "2.10"]', '["2.6"]'))
    done = torchwheel("wheels", "--archs", "9.0", cwd=folder, PIP_FIND_LINKS=links)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("pip install --index-url") == 1, "one command serves both wheels"
    pure, universal = sorted(
        (folder / "dist").glob("my_kernels-0.1.0-py3-none-*.whl"),
        key=lambda wheel: wheel.stat().st_size,
    )
    assert pure.name == "my_kernels-0.1.0-py3-none-any.whl"
    libraries = {name for name in zipfile.ZipFile(universal).namelist() if name.endswith(".so")}
    assert libraries == {
        "my_kernels/_lib/kernels/cu130.so",
        "my_kernels/_lib/front_end/stable.so",
        "my_kernels/_lib/front_end/torch2_6.so",
    }
    assert list((folder / "dist" / "index").rglob("my-kernels/index.html"))
    again = torchwheel("wheels", "--archs", "9.0", cwd=folder, PIP_FIND_LINKS=links)
    assert "nothing to do" in again.stderr
    assembled = torchwheel("assemble", "--selection", "universal", "dist", cwd=folder)
    # The matrix says seven archs, this wheel has one: a release takes what the matrix says.
    assert "made from another matrix" in assembled.stderr
