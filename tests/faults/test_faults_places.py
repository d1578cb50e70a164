"""Full disks, forbidden folders, swapped files, odd names and umasks, links that lead out."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from killing import digest, leftovers, torchwheel

from linkmaker import LEAVING, STAYING, plant
from smalldisk import small_disk
from torchwheel.index.writer import IndexedWheel, build_index
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration

# root without any capability: folders are forbidden to it as to anybody.
ORDINARY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


INDEX = """
import sys
import zipfile
from pathlib import Path
from torchwheel_runtime.errors import TorchwheelError
from torchwheel.index.writer import IndexedWheel, build_index
try:
    wheels = [IndexedWheel(path, ("cpu",)) for path in Path(sys.argv[1]).glob("*.whl")]
    build_index(wheels, Path(sys.argv[2]))
except TorchwheelError as error:
    sys.exit(str(error))
"""


def test_a_disk_that_is_full_at_any_byte_keeps_the_old_index(tmp_path):
    old = make_wheel(tmp_path / "old")
    for number in range(8):
        make_wheel(tmp_path / "new", version=f"2.{number}")
    disk = tmp_path / "disk"
    full = 0
    with small_disk(disk, "size=1m"):
        index, filler = disk / "index", disk / "filler"
        command = [sys.executable, "-c", INDEX, str(tmp_path / "new"), str(index)]
        for pages in range(0, 48, 4):
            filler.unlink(missing_ok=True)
            build_index([IndexedWheel(old, ("cpu",))], index)
            before = digest(index)
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            filler.write_bytes(b"x" * max(0, free - pages * 4096))
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                full += 1
                assert done.stderr.startswith(f"no space left on the disk of {disk} or ")
                assert len(done.stderr.splitlines()) == 1
                assert digest(index) == before
            assert leftovers(disk) == []
    assert 3 <= full < 12


@pytest.fixture(scope="module")
def made(projects):
    """A project with its finished wheel, built under the usual umask."""
    (project, _) = projects
    subprocess.run(
        torchwheel("wheels", "pure"), cwd=project, check=True, capture_output=True, umask=0o022
    )
    return project


def test_odd_names_locale_and_umask_give_the_same_bytes_and_no_access(made, tmp_path):
    odd = tmp_path / "a b" / "%(x)s" / "$HOME" / "ü'\"\\"
    odd.mkdir(parents=True)
    project = odd / "small"
    shutil.copytree(made, project, ignore=shutil.ignore_patterns("dist"))
    done = subprocess.run(
        torchwheel("wheels", "pure"),
        cwd=project,
        env={**os.environ, "LC_ALL": "C"},
        umask=0o077,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (usual,) = (made / "dist").glob("*.whl")
    assert (project / "dist" / usual.name).read_bytes() == usual.read_bytes()
    written = [project / "dist", *(project / "dist").rglob("*")]
    assert [path for path in written if path.stat().st_mode & 0o077] == []


def test_swapped_files_are_written_again(made, tmp_path):
    project = tmp_path / "small"
    shutil.copytree(made, project)
    dist = project / "dist"
    (wheel,) = dist.glob("*.whl")
    before = wheel.read_bytes()
    other = tmp_path / "other"
    other.write_bytes(b"other")
    wheel.unlink()
    wheel.symlink_to(other)
    shutil.rmtree(dist / "index")
    (dist / "index").write_text("a file")
    (dist / "report.json").unlink()
    (dist / "report.json").symlink_to(other)
    done = subprocess.run(
        torchwheel("wheels", "pure"), cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert other.read_bytes() == b"other", "nothing was written through a link"
    assert not wheel.is_symlink()
    assert wheel.read_bytes() == before
    assert (dist / "index" / "files" / wheel.name).read_bytes() == before
    assert json.loads((dist / "report.json").read_text())["variants"][0]["fresh"]


@pytest.mark.parametrize(
    ("case", "user"), [("a file of the system", "root"), *((case, "ordinary") for case in LEAVING)]
)
def test_a_link_that_leads_out_of_the_project_is_one_line(made, tmp_path, case, user):
    project = tmp_path / "small"
    shutil.copytree(made, project, ignore=shutil.ignore_patterns("dist"))
    plant(project, LEAVING[case])
    command = [*prefix_of(user), *torchwheel("wheels", "pure")]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f": expected a link that stays in {project}, found one to " in done.stderr
    assert not list(project.glob("dist/*.whl"))


def test_links_that_stay_in_the_project_are_no_fault(made, tmp_path):
    project = tmp_path / "small"
    shutil.copytree(made, project, ignore=shutil.ignore_patterns("dist"))
    (project / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    plant(project, {**STAYING, "small/again.py": "__init__.py"})
    done = subprocess.run(
        torchwheel("wheels", "pure"), cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (project / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("small/again.py") == archive.read("small/__init__.py")


def prefix_of(user: str) -> tuple[str, ...]:
    """What runs a command as that user."""
    if user == "root" and os.geteuid():
        pytest.skip("only root is root")
    if user == "ordinary" and not os.geteuid():
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not installed")
        return ORDINARY
    return ()
