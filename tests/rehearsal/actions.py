"""Stand-ins for the actions that the workflows use, with the inputs that these give.

Each runs as the job's user, as `python actions.py NAME`, with its inputs in REHEARSAL_WITH. An
input that is not known here is an error: the real action would do what nobody has looked at.
"""

import fnmatch
import glob
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from client import ForgeError, ask, ask_json, fail

SESSIONS = (
    *("wheels", "kernels", "verify", "smoke", "assemble", "index"),
    *("handover", "assets", "dispatch", "published"),
)

Inputs = Mapping[str, Any]

_TWINE = """
import os, sys
from twine import repository
from twine.__main__ import main
server = sys.argv.pop(1)
os.environ["TWINE_REPOSITORY_URL"] = repository.WAREHOUSE = f"{server}/"
repository.LEGACY_PYPI = f"{server}/legacy/"
sys.exit(main())
"""
"""twine skips existing files on PyPI alone, which it knows by its address. Where it looks first, it
finds no list of them, as that of PyPI may be old; so it sees them by the answer to the upload."""


def checkout(inputs: Inputs) -> dict[str, str]:
    """The commit of the run, alone, without credentials. The workspace is emptied by the runner."""
    where, source = os.environ["GITHUB_WORKSPACE"], os.environ["REHEARSAL_SOURCE"]
    ref = inputs.get("ref") or os.environ["GITHUB_SHA"]
    git = ("git", "-c", "safe.directory=*", "-c", "init.defaultBranch=main")
    _run(*git, "init", "--quiet", where)
    _run(*git, "-C", where, "remote", "add", "origin", source)
    depth = ("--depth", "1") if str(inputs.get("fetch-depth", 1)) != "0" else ()
    _run(*git, "-C", where, "fetch", "--quiet", *depth, "origin", ref)
    _run(*git, "-C", where, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    if kept := os.environ["REHEARSAL_KEPT"]:
        # A machine of one's own keeps the environments of its sessions. All that a release runs
        # install the same, so the first serves the others.
        made = Path(kept) / "nox"
        made.mkdir(exist_ok=True)
        for name in SESSIONS:
            if (made / "matrix").exists() and not (made / name).exists():
                (made / name).symlink_to("matrix")
        (Path(where) / ".nox").symlink_to(made)
    return {}


def setup_python(inputs: Inputs) -> dict[str, str]:
    """A Python of the machine's tool cache, first on PATH."""
    folder = Path(os.environ["REHEARSAL_TOOLS"])
    clean = os.environ.get("REHEARSAL_CLEAN")
    python = Path(os.environ["RUNNER_TEMP"] if clean else folder) / "python"
    if not python.exists():
        _run("python3", "-m", "venv", str(python))
    with Path(os.environ["GITHUB_PATH"]).open("a") as out:
        out.write(f"{python / 'bin'}\n")
    return {"python-version": inputs.get("python-version", "")}


def upload_artifact(inputs: Inputs) -> dict[str, str]:
    """Files by patterns; see `_top` for their names in the artifact."""
    hidden, overwrite = (_is_true(inputs.get(n)) for n in ("include-hidden-files", "overwrite"))
    return _upload(inputs["name"], inputs["path"], hidden=hidden, overwrite=overwrite)


def upload_pages_artifact(inputs: Inputs) -> dict[str, str]:
    """A folder for Pages. The real one calls upload-artifact, without `overwrite`."""
    name = inputs.get("name", "github-pages")
    return _upload(name, inputs["path"], hidden=False, overwrite=False)


def download_artifact(inputs: Inputs) -> dict[str, str]:
    """One artifact by its name or number, or those of a pattern, each in a folder of its own."""
    found = ask_json("GET", "/artifacts", retry=True)
    name, pattern, where = inputs.get("name"), inputs.get("pattern"), Path(inputs["path"])
    number = inputs.get("artifact-ids")
    if number:
        found = [artifact for artifact in found if str(artifact["id"]) == number]
        if not found:
            fail("No artifacts found for the provided IDs")
    elif name:
        found = [artifact for artifact in found if artifact["name"] == name]
        if not found:
            fail(f"Unable to download artifact(s): Artifact not found for name: {name}")
    elif pattern:
        found = [a for a in found if any(fnmatch.fnmatchcase(a["name"], p) for p in _any(pattern))]
    for artifact in found:
        data = ask("GET", f"/artifacts/{artifact['id']}", retry=True)
        if hashlib.sha256(data).hexdigest() != artifact["sha256"]:
            fail(f"{artifact['name']}: the digest of the artifact does not match")
        own = bool(name or number) or _is_true(inputs.get("merge-multiple"))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(where if own else where / artifact["name"])
    return {}


def attest(inputs: Inputs) -> dict[str, str]:
    """One bundle for all subjects: files by patterns, or the lines of SHA256SUMS."""
    if checksums := inputs.get("subject-checksums"):
        sums = Path(checksums).read_text()
    else:
        files = _matching(inputs["subject-path"], hidden=True)
        if not files:
            fail(f"Could not find subject at path {inputs['subject-path']}")
        sums = "".join(f"{_sha256(file)}  {file.name}\n" for file in files)
    bundle = Path(os.environ["RUNNER_TEMP"]) / "attestation" / "attestation.json"
    bundle.parent.mkdir(exist_ok=True)
    bundle.write_bytes(ask("POST", "/attestations", sums.encode(), retry=True))
    return {"bundle-path": str(bundle)}


def deploy_pages(inputs: Inputs) -> dict[str, str]:
    """Publishes the artifact of that name; the run must have exactly one."""
    name = inputs.get("artifact_name", "github-pages")
    return dict(ask_json("POST", "/pages", retry=True, artifact_name=name))


def pypi_publish(inputs: Inputs) -> dict[str, str]:
    """Checks and uploads with twine, by the commands of the action."""
    files = sorted(map(str, Path(inputs["packages-dir"]).iterdir()))
    twine = [os.environ["REHEARSAL_PYTHON"], "-c", _TWINE, os.environ["REHEARSAL_PYPI"]]
    login = ("--username", "__token__", "--password", os.environ["REHEARSAL_TOKEN"])
    existing = ("--skip-existing",) if _is_true(inputs.get("skip-existing")) else ()
    _run(*twine, "check", *files)
    _run(*twine, "upload", "--disable-progress-bar", *login, *existing, *files)
    return {}


ACTIONS: Mapping[str, tuple[Callable[[Inputs], dict[str, str]], frozenset[str]]] = {
    "actions/checkout": (
        checkout,
        frozenset({"persist-credentials", "fetch-depth", "ref", "submodules"}),
    ),
    "actions/setup-python": (setup_python, frozenset({"python-version"})),
    "actions/upload-artifact": (
        upload_artifact,
        frozenset({"name", "path", "overwrite", "include-hidden-files", "if-no-files-found"}),
    ),
    "actions/download-artifact": (
        download_artifact,
        frozenset({"name", "pattern", "path", "merge-multiple", "artifact-ids"}),
    ),
    "actions/attest-build-provenance": (attest, frozenset({"subject-path", "subject-checksums"})),
    "actions/upload-pages-artifact": (upload_pages_artifact, frozenset({"name", "path"})),
    "actions/deploy-pages": (deploy_pages, frozenset({"artifact_name"})),
    "pypa/gh-action-pypi-publish": (pypi_publish, frozenset({"packages-dir", "skip-existing"})),
}


def _upload(name: str, patterns: str, *, hidden: bool, overwrite: bool) -> dict[str, str]:
    files = _matching(patterns, hidden=hidden)
    if not files:
        fail(f"No files were found with the provided path: {patterns}")
    top = _top(patterns, files)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for file in files:
            # The date of a file is not kept, and neither is its mode.
            archive.writestr(zipfile.ZipInfo(str(file.relative_to(top))), file.read_bytes())
    text = "true" if overwrite else "false"
    answer = json.loads(
        ask("POST", "/artifacts", out.getvalue(), retry=True, name=name, overwrite=text)
    )
    return {"artifact-id": str(answer["id"])}


def _matching(patterns: str, *, hidden: bool) -> list[Path]:
    """Files that patterns match, one a line; a folder means all that is in it."""
    found: dict[Path, None] = {}
    for pattern in patterns.split("\n"):
        for match in glob.glob(pattern.strip(), include_hidden=True):  # noqa: PTH207 - hidden ones
            for path in _below(Path(match).absolute()):
                is_hidden = any(part.startswith(".") for part in Path(os.path.relpath(path)).parts)
                if hidden or not is_hidden or ".." in os.path.relpath(path):
                    found[path] = None
    return sorted(found)


def _top(patterns: str, files: list[Path]) -> Path:
    """The folder to which the names in an artifact are relative.

    It is what the patterns have in common, each up to its first wildcard; not what the files have:
    a folder with one folder in it stays two.
    """
    literal = [
        re.split(r"/?[^/]*[*?\[]", pattern.strip(), maxsplit=1)[0]
        for pattern in patterns.split("\n")
    ]
    top = Path(os.path.commonpath([Path(path).absolute() for path in literal if path]))
    return top.parent if files == [top] else top


def _below(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*")) if file.is_file())
    else:
        yield path


def _any(pattern: str) -> list[str]:
    """A pattern `{a,b}` as its alternatives."""
    braces = re.fullmatch(r"\{(.*)\}", pattern)
    return braces[1].split(",") if braces else [pattern]


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def main(name: str) -> None:
    """Run one action and write its outputs."""
    if name not in ACTIONS:
        fail(f"{name}: there is no stand-in for this action")
    function, known = ACTIONS[name]
    inputs = json.loads(os.environ["REHEARSAL_WITH"])
    if unknown := sorted(set(inputs) - known):
        fail(f"{name}: the stand-in does not know {', '.join(unknown)}")
    try:
        outputs = function(inputs)
    except (ForgeError, subprocess.CalledProcessError) as error:
        fail(str(error))
    with Path(os.environ["GITHUB_OUTPUT"]).open("a") as out:
        out.writelines(f"{key}={value}\n" for key, value in outputs.items())


if __name__ == "__main__":
    main(sys.argv[1])
