"""Asks pip many questions in one process: python pip_rows.py SITE REPORT < questions, as JSON."""

import json
import sys
from pathlib import Path


def with_torch(site: Path, version: str | None) -> None:
    """Leave this torch in a site-packages folder, and no other."""
    for info in site.glob("torch-*.dist-info"):
        for file in info.iterdir():
            file.unlink()
        info.rmdir()
    if version:
        info = site / f"torch-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
        (info / "INSTALLER").write_text("pip\n")
        (info / "WHEEL").write_text("Wheel-Version: 1.0\n")


def answer(site: Path, report: Path) -> None:
    from pip._internal.cli.main import main

    answers = []
    for torch, options in json.load(sys.stdin):
        with_torch(site, torch)
        report.unlink(missing_ok=True)
        status = main(
            ["install", "--isolated", "--quiet", "--dry-run", "--report", str(report)]
            + ["--no-cache-dir", "--disable-pip-version-check", *options]
        )
        found = json.loads(report.read_text())["install"] if report.is_file() else []
        answers.append([int(status), found])
    with_torch(site, None)
    print(json.dumps(answers))


if __name__ == "__main__":
    answer(Path(sys.argv[1]), Path(sys.argv[2]))
