"""torch's headers without torch: files of its wheel, each checked against the lock.

The headers of the x86_64 wheel serve every platform: aarch64's differ from them only in files that
no binding includes (ATen/Config.h, sleef.h, caffe2/core/macros.h) and, up to torch 2.10, lack
CUDA's, because PyPI's aarch64 wheel was built without CUDA then.
"""

import contextlib
import csv
import dataclasses
import hashlib
import json
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.files import path_inside, record_hash, write_text
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.ownership import trusted_folder
from torchwheel_runtime.toolkit.cache import make_once
from torchwheel_runtime.toolkit.index import (
    NoRangesError,
    RemoteArchive,
    download,
    find_files,
    target_options,
)
from torchwheel_runtime.toolkit.lock import TORCH_PYTHON, TorchSource, look_up_torch, torch_source

_INCLUDE = "torch/include/"
# The file that names the C++ ABI of torch.
_CONFIG = "torch/share/cmake/Torch/TorchConfig.cmake"


def torch_headers(minor: str, cache: Path, progress: Progress) -> Path:
    """A folder with torch/include and TorchConfig.cmake of torch `minor`, e.g. "2.11".

    They have the wheel's paths and are fetched unless the cache has them.
    """
    source = source_of_headers(minor, cache, progress)
    root = cache / "torch" / f"torch-{source.version}-{source.record_sha256[:16]}"
    make_once(
        root,
        lambda folder: _fetch_headers(source, folder),
        progress,
        doing=f"torch {source.version}: reading its headers",
        busy=f"torch {source.version}: another build reads its headers",
    )
    return root


def source_of_headers(minor: str, cache: Path, progress: Progress) -> TorchSource:
    """The source of the headers: the lock's, or read off the index once and kept in the cache."""
    with contextlib.suppress(UsageError):
        return torch_source(minor)
    kept = trusted_folder(cache / "torch") / f"headers-{minor}.json"
    try:
        return read_json(kept, TorchSource)
    except (OSError, MalformedError):
        progress.step(f"torch {minor}: not in the lock, looking it up")
        found = look_up_torch(f"{minor}.*")
        write_text(kept, json.dumps(dataclasses.asdict(found)) + "\n")
        return found


def _fetch_headers(source: TorchSource, target: Path) -> None:
    file = find_files([f"torch=={source.version}"], source.platform, TORCH_PYTHON)[0]
    if file.sha256 != source.sha256:
        raise TorchwheelError(
            f"hash mismatch: the index has torch {source.version} with sha256 {file.sha256}, "
            f"the lock has {source.sha256}; nothing was taken"
        )
    try:
        archive = RemoteArchive(file.url)
        names = _require_headers(archive.members(_is_header), source)
        archive.fetch(names)
        extract_verified([*names, _CONFIG], archive.read, source, target)
    except NoRangesError:
        _fetch_from_whole_wheel(source, target)


def _fetch_from_whole_wheel(source: TorchSource, target: Path) -> None:
    """Download the complete wheel by its hash: the fallback for a server without ranges."""
    with tempfile.TemporaryDirectory(dir=target) as folder:
        (wheel,) = download(
            {f"torch=={source.version}": source.sha256},
            Path(folder),
            target_options(source.platform, TORCH_PYTHON),
            f"downloading torch {source.version} for its headers",
        )
        with zipfile.ZipFile(wheel) as archive:
            names = _require_headers(list(filter(_is_header, archive.namelist())), source)
            extract_verified([*names, _CONFIG], archive.read, source, target)


def _is_header(name: str) -> bool:
    return name.startswith(_INCLUDE) and not name.endswith("/")


def _require_headers(names: list[str], source: TorchSource) -> list[str]:
    if not names:
        raise TorchwheelError(f"torch {source.version}: its wheel holds no headers")
    return names


def extract_verified(
    names: list[str], read: Callable[[str], bytes], source: TorchSource, target: Path
) -> None:
    """Write `names` below `target`; check each against RECORD, and RECORD against the lock."""
    where = f"torch {source.version}"
    record = read(f"torch-{source.version}.dist-info/RECORD")
    if hashlib.sha256(record).hexdigest() != source.record_sha256:
        raise TorchwheelError(f"hash mismatch: {where}: its RECORD is not the one in the lock")
    rows = csv.reader(record.decode("utf-8").splitlines())
    hashes = {row[0]: row[1] for row in rows if len(row) == 3}
    made: dict[str, str] = {}
    for name in names:
        data = read(name)
        if hashes.get(name) != record_hash(hashlib.sha256(data).digest()):
            raise TorchwheelError(
                f"hash mismatch: {where}: {name} is not the file its RECORD names"
            )
        # The check of a path asks the disk for each part of it, so a folder is checked once. What
        # is in it was made here: there is no link that the name of a file could lead out by.
        folder, _, file = name.rpartition("/")
        if file in ("", ".", ".."):
            raise TorchwheelError(f"{where}: member {name!r} names no file")
        if folder not in made:
            path = path_inside(target, folder, where)
            path.mkdir(parents=True, exist_ok=True)
            made[folder] = str(path)
        with open(f"{made[folder]}/{file}", "wb") as output:  # noqa: PTH123 - of thousands
            output.write(data)
