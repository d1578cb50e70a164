"""A stand-in for `gh`: the commands that the release uses, against the forge on loopback."""

import argparse
import fnmatch
import json
import sys
import urllib.parse
from pathlib import Path
from typing import Any

from client import ForgeError, ask, ask_json, fail

PREFIX = "repos/{owner}/{repo}"


def api(options: argparse.Namespace) -> None:
    """`gh api --paginate --slurp` of a list: here all of it is one page."""
    path = urllib.parse.urlsplit(options.path).path
    if not path.startswith(PREFIX):
        fail(f"{options.path}: the stand-in knows addresses below {PREFIX}")
    answer = ask_json("GET", path.removeprefix(PREFIX))
    print(json.dumps([answer] if options.slurp else answer))


def release_list(options: argparse.Namespace) -> None:
    rows = ask_json("GET", "/releases")
    kept = [row for row in rows if not (options.exclude_drafts and row["draft"])]
    names = {"tagName": "tag_name", "isDraft": "draft", "isPrerelease": "prerelease"}
    shown = [{f: row[names[f]] for f in options.json.split(",")} for row in kept[: options.limit]]
    _print(shown, options.jq)


def release_view(options: argparse.Namespace) -> None:
    """The names of the assets, which is all that is asked for."""
    if (options.json, options.jq) != ("assets", ".assets[].name"):
        fail(f"the stand-in does not know {options.json} {options.jq}")
    for asset in ask_json("GET", f"/releases/{_release(options.tag)['id']}/assets"):
        print(asset["name"])


def release_create(options: argparse.Namespace) -> None:
    """With files, gh fills a draft and publishes it at the end. If it cannot, the draft goes."""
    filled = bool(options.files) and not options.draft
    published = [row for row in ask_json("GET", "/releases") if not row["draft"]]
    if filled and options.tag in [row["tag_name"] for row in published]:
        fail(f"a release with the same tag name already exists: {options.tag}")
    asked = {"tag": options.tag, "draft": options.draft or filled, "verify_tag": options.verify_tag}
    number = ask_json("POST", "/releases", asked)["id"]
    try:
        for file in options.files:
            _upload(number, Path(file))
    except ForgeError:
        if filled:
            ask("DELETE", f"/releases/{number}")
        raise
    if filled:
        # Whatever version it is, the newest release becomes the latest.
        edit = {"draft": False, "prerelease": False, "latest": True}
        ask("PATCH", f"/releases/{number}", json.dumps(edit).encode())


def release_upload(options: argparse.Namespace) -> None:
    number = _release(options.tag)["id"]
    present = {asset["name"] for asset in ask_json("GET", f"/releases/{number}/assets")}
    for file in map(Path, options.files):
        if file.name in present and not options.clobber:
            fail(f"asset under the same name already exists: [{file.name}]")
    for file in map(Path, options.files):
        if file.name in present:
            ask("DELETE", f"/releases/{number}/assets/{file.name}")
        _upload(number, file)


def release_delete_asset(options: argparse.Namespace) -> None:
    ask("DELETE", f"/releases/{_release(options.tag)['id']}/assets/{options.name}")


def release_edit(options: argparse.Namespace) -> None:
    asked = {n: getattr(options, n) == "true" for n in ("draft", "prerelease", "latest")}
    ask("PATCH", f"/releases/{_release(options.tag)['id']}", json.dumps(asked).encode())


def release_download(options: argparse.Namespace) -> None:
    assets = ask_json("GET", f"/releases/{_release(options.tag)['id']}/assets")
    names = [asset["name"] for asset in assets]
    patterns = options.pattern or ["*"]
    wanted = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    if not wanted:
        fail("no assets match the file pattern" if options.pattern else "no assets to download")
    folder = Path(options.dir)
    folder.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        target = folder / name
        if target.exists() and not options.clobber:
            fail(f"{target} already exists (use `--clobber` to overwrite file)")
        target.write_bytes(ask("GET", f"/o/r/releases/download/{options.tag}/{name}"))


def workflow_run(options: argparse.Namespace) -> None:
    inputs = dict(field.split("=", 1) for field in options.raw_field)
    asked = {"workflow": options.workflow, "ref": options.ref, "inputs": inputs}
    ask_json("POST", "/dispatches", asked)


def run_list(options: argparse.Namespace) -> None:
    rows = ask_json("GET", "/runs", workflow=options.workflow)
    fields = options.json.split(",")
    _print([{field: row[field] for field in fields} for row in rows[: options.limit]], options.jq)


def _release(tag: str) -> dict[str, Any]:
    found = [row for row in ask_json("GET", "/releases") if row["tag_name"] == tag]
    if not found:
        fail("release not found")
    return dict(found[0])


def _upload(number: int, file: Path) -> None:
    ask("PUT", f"/releases/{number}/assets/{file.name}", file.read_bytes())


def _print(rows: list[dict[str, Any]], query: str) -> None:
    if not query:
        print(json.dumps(rows))
    elif query.startswith(".[]."):
        print("\n".join(str(row[query.removeprefix(".[].")]) for row in rows))
    else:
        fail(f"the stand-in does not know the query {query}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gh")
    groups = parser.add_subparsers(required=True)
    add = groups.add_parser("api")
    add.set_defaults(run=api)
    add.add_argument("path")
    add.add_argument("--paginate", action="store_true")
    add.add_argument("--slurp", action="store_true")
    release = groups.add_parser("release").add_subparsers(required=True)
    for name, function, positional in (
        ("list", release_list, ()),
        ("view", release_view, ("tag",)),
        ("create", release_create, ("tag", "files*")),
        ("upload", release_upload, ("tag", "files*")),
        ("delete-asset", release_delete_asset, ("tag", "name")),
        ("edit", release_edit, ("tag",)),
        ("download", release_download, ("tag",)),
    ):
        add = release.add_parser(name)
        add.set_defaults(run=function)
        for word in positional:
            add.add_argument(word.rstrip("*"), nargs="*" if word.endswith("*") else None)
        if name == "list":
            add.add_argument("--limit", type=int, default=30)
            add.add_argument("--exclude-drafts", action="store_true")
        if name in ("list", "view"):
            _of_lists(add)
        for flag in {"create": ("verify-tag", "notes-from-tag"), "edit": ("verify-tag",)}.get(
            name, ("clobber", "yes", "skip-existing")
        ):
            add.add_argument(f"--{flag}", action="store_true")
        if name == "create":
            add.add_argument("--draft", action="store_true")
            add.add_argument("--title")
        if name == "edit":
            for flag in ("draft", "prerelease", "latest"):
                add.add_argument(f"--{flag}", default="false", nargs="?", const="true")
        if name == "download":
            add.add_argument("--dir", default=".")
            add.add_argument("--pattern", action="append")
    workflow = groups.add_parser("workflow").add_subparsers(required=True).add_parser("run")
    workflow.set_defaults(run=workflow_run)
    workflow.add_argument("workflow")
    workflow.add_argument("--ref", required=True)
    workflow.add_argument("--raw-field", action="append", default=[])
    runs = groups.add_parser("run").add_subparsers(required=True).add_parser("list")
    runs.set_defaults(run=run_list)
    runs.add_argument("--workflow")
    runs.add_argument("--event")
    runs.add_argument("--limit", type=int, default=20)
    _of_lists(runs)
    return parser


def _of_lists(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", required=True)
    parser.add_argument("--jq", default="")


if __name__ == "__main__":
    given = _parser().parse_args()
    try:
        given.run(given)
    except ForgeError as error:
        fail(str(error))
    sys.exit(0)
