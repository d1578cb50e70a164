"""The repository, the commit and the workflows that the tests of signed evidence believe."""

import json
from pathlib import Path
from typing import Any

import signing

REPOSITORY = "https://github.com/owner/demo"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER_COMMIT = "f" * 40
WORKFLOWS = {
    "build": ".github/workflows/wheels.yml",
    "smoke": ".github/workflows/smoke.yml",
    "release": ".github/workflows/release.yml",
}
BUILD = signing.Job(REPOSITORY, WORKFLOWS["build"], COMMIT, caller=".github/workflows/release.yml")


def save(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content))
    return path
