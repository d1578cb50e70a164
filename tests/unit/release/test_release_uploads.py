"""`assemble --pypi` refuses a file that PyPI would refuse, before anything is published."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from release_artifacts import Artifacts, run

from torchwheel.inspect.wheel import read_wheel
from torchwheel.release import uploads
from torchwheel.release.sdists import Sdist
from torchwheel.release.uploads import metadata_faults, upload_faults
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import make_wheel

ROOT = Path(__file__).parents[3]


def metadata(*lines: str, version: str = "2.4", description: str = "") -> bytes:
    head = [f"Metadata-Version: {version}", "Name: demo", "Version: 1.0.0", *lines]
    return "\n".join([*head, "", description]).encode()


def faults(*lines: str, **options: str) -> list[str]:
    return list(metadata_faults(metadata(*lines, **options)))


def test_what_pypi_takes():
    lines = (
        "Summary: " + "s" * 512,
        "Author-email: A <a@example.org>",
        "Home-page: https://example.org/a",
        "Project-URL: Source, https://example.org/b",
        "License-Expression: Apache-2.0",
        "Classifier: Programming Language :: Python :: 3",
        "Requires-Dist: torch>=2.6",
        "Description-Content-Type: text/markdown; charset=UTF-8; variant=GFM",
    )
    assert faults(*lines, description="# Title\n\n`a\n") == []
    assert faults() == []


RST = "Title\n=====\n\n.. nosuch:: directive\n"
REFUSED = {
    ("Summary: " + "s" * 513,): "Summary: expected at most 512 characters, found 513",
    (
        "Requires-Dist: a @ https://example.org/a.whl",
    ): 'Requires-Dist: expected no address, found "a @ https://example.org/a.whl"',
    ("Home-page: ftp://a",): 'Home-page: expected an address of http or https, found "ftp://a"',
    (
        "Project-URL: Source, nowhere",
    ): 'Project-URL Source: expected an address of http or https, found "nowhere"',
    (
        f"Project-URL: {'l' * 33}, https://example.org",
    ): f'Project-URL: expected a label of 1 to 32 characters, found "{"l" * 33}"',
    (
        "Author-email: A <a@nowhere>",
    ): 'Author-email: expected an e-mail address, found "A <a@nowhere>"',
    (
        "License-Expression: MIT",
        "License: MIT",
    ): "License: expected none beside License-Expression, found one",
    ("License-Expression: MIT", "Classifier: License :: OSI Approved :: MIT License"): (
        "Classifier: expected none beside License-Expression, found "
        '"License :: OSI Approved :: MIT License"'
    ),
    ("Classifier: Private :: Do Not Upload",): (
        'Classifier: "Private :: Do Not Upload" keeps it from PyPI on purpose'
    ),
    ("Classifier: Programming Language :: Pyhton",): (
        'Classifier: expected one that PyPI knows, found "Programming Language :: Pyhton"'
    ),
    ("Classifier: Natural Language :: Ukranian",): (
        "Classifier: expected Natural Language :: Ukrainian, found "
        '"Natural Language :: Ukranian", which is deprecated'
    ),
    ("License-Expression: none of these",): (
        "license-expression: 'none of these' is invalid for 'license-expression'"
    ),
    ("Description-Content-Type: text/html",): "description-content-type: ",
}


@pytest.mark.parametrize("lines", REFUSED)
def test_what_pypi_refuses(lines):
    (fault,) = faults(*lines)
    assert fault.startswith(REFUSED[lines])


@pytest.mark.parametrize("kind", ["Description-Content-Type: text/x-rst", None])
def test_a_description_that_does_not_render(kind):
    (fault,) = faults(*filter(None, [kind]), description=RST)
    unset = "" if kind else ", as its content type is unset"
    assert fault.startswith(f"Description: expected reStructuredText{unset}; <string>:4: (ERROR")
    assert "nosuch" in fault
    assert faults(*filter(None, [kind]), description="Title\n=====\n\n*a*\n") == []
    for other in ("text/plain", "text/markdown"):
        assert faults(f"Description-Content-Type: {other}", description=RST) == []


def wheel_faults(path: Path) -> list[str]:
    return [fault.removeprefix(f"{path.name}: ") for fault in _faults(path)]


def _faults(path: Path) -> list[str]:
    return list(upload_faults([read_wheel(path)], []))


def test_a_wheel_with_a_local_version_is_not_uploaded(tmp_path):
    path = make_wheel(tmp_path, version="1.0.0+cu130", tag="py3-none-linux_x86_64")
    assert wheel_faults(path) == []


def test_a_platform_without_a_limit_on_glibc_is_refused(tmp_path):
    path = make_wheel(tmp_path, tag="py3-none-linux_x86_64")
    (fault,) = wheel_faults(path)
    assert fault == (
        "PyPI refuses it: expected a tag such as manylinux_2_28_x86_64, found linux_x86_64"
    )
    assert wheel_faults(make_wheel(tmp_path, tag="py3-none-manylinux_2_17_x86_64")) == []


def test_a_file_may_have_100_mib(tmp_path, monkeypatch):
    path = make_wheel(tmp_path)
    monkeypatch.setattr(uploads, "MAX_BYTES", path.stat().st_size)
    assert wheel_faults(path) == []
    monkeypatch.setattr(uploads, "MAX_BYTES", path.stat().st_size - 1)
    (fault,) = wheel_faults(path)
    assert fault.endswith("MiB; ask PyPI for a larger limit")


@pytest.mark.parametrize(("version", "refused"), [("2.4", True), ("2.1", False)])
def test_a_license_file_must_be_there(tmp_path, version, refused):
    def bend(members: dict[str, bytes]) -> None:
        name = "demo-1.0.0.dist-info/METADATA"
        members[name] = metadata("License-File: LICENSE", version=version)

    (fault,) = wheel_faults(make_wheel(tmp_path, bend=bend))
    missing = 'License-File: expected "demo-1.0.0.dist-info/licenses/LICENSE" in it, found none'
    assert (missing in fault) is refused


def sdist(folder: Path, raw: bytes, name: str = "demo-1.0.0.tar.gz") -> Sdist:
    made = Sdist(folder / name, folder / "demo-1.0.0")
    made.source.mkdir(parents=True)
    (made.source / "PKG-INFO").write_bytes(raw)
    made.path.write_bytes(b"")
    return made


def sdist_faults(made: Sdist) -> list[str]:
    return list(upload_faults([], [made]))


def test_an_sdist(tmp_path):
    assert sdist_faults(sdist(tmp_path / "a", metadata())) == []
    (fault,) = sdist_faults(sdist(tmp_path / "b", metadata(), "Demo-1.0.0.tar.gz"))
    assert fault == ("Demo-1.0.0.tar.gz: PyPI refuses it: expected the name demo-1.0.0.tar.gz")
    (fault,) = sdist_faults(sdist(tmp_path / "c", metadata("License-File: COPYING")))
    assert fault.endswith('License-File: expected "COPYING" in it, found none')
    (fault,) = sdist_faults(sdist(tmp_path / "d", b"nothing"))
    assert "PKG-INFO cannot be read: METADATA is not valid" in fault


def test_a_release_is_refused_only_where_it_is_uploaded(artifacts, green_gates, bend_pure, out):
    bend_pure("Classifier: Private :: Do Not Upload")
    run(artifacts, out)
    with pytest.raises(TorchwheelError) as caught:
        run(artifacts, out.with_name("other"), pypi=True)
    head, *lines = str(caught.value).splitlines()
    assert head.endswith("faults: 2")
    assert lines[0].startswith('demo-1.0.0-py3-none-any.whl: PyPI refuses it: Classifier: "Private')
    assert lines[1].startswith("demo-1.0.0.tar.gz: PyPI refuses it: PKG-INFO cannot be read")
    assert not out.with_name("other").exists()


@pytest.fixture
def bend_pure(artifacts: Artifacts) -> Callable[[str], None]:
    """Writes a line into METADATA of the pure wheel, and its records anew."""

    def write(line: str) -> None:
        def bend(members: dict[str, bytes]) -> None:
            name = "demo-1.0.0.dist-info/METADATA"
            members[name] = members[name].rstrip(b"\n") + f"\n{line}\n".encode()

        artifacts.again("pure", bend=bend)

    return write


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
@pytest.mark.parametrize("project", [ROOT, ROOT / "pkg/torchwheel"])
def test_our_own_classifiers_and_addresses(project):
    """Of the pyproject.toml files here; the descriptions are Markdown."""
    import tomllib

    table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    lines = [f"Summary: {table['description']}", f"License-Expression: {table['license']}"]
    lines += [f"Classifier: {name}" for name in table.get("classifiers", ())]
    lines += [f"Project-URL: {item}, {at}" for item, at in table.get("urls", {}).items()]
    lines += [f"Requires-Dist: {name}" for name in table["dependencies"]]
    assert faults(*lines) == []
    assert table.get("readme", "README.md").endswith(".md")
