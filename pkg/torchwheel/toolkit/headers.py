"""torch's headers without torch: read out of its wheel, each checked against the lock."""

import csv
import hashlib
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError
from torchwheel.files import inside, record_hash
from torchwheel.toolkit.cache import made_once
from torchwheel.toolkit.index import download, find, target_options
from torchwheel.toolkit.lock import TORCH_PYTHON, TorchSource, torch_source
from torchwheel.toolkit.remote import NoRangesError, RemoteArchive

_INCLUDE = "torch/include/"


def torch_headers(minor: str, cache: Path, progress: Progress) -> Path:
    """The include folder of torch `minor`, e.g. "2.11"; fetched if it is not in the cache."""
    source = torch_source(minor)
    root = cache / "headers" / f"torch-{source.version}-{source.record_sha256[:16]}"
    made_once(
        root,
        lambda aside: _fetch(source, aside),
        progress,
        doing=f"torch {source.version}: reading its headers",
        busy=f"torch {source.version}: another run reads its headers",
    )
    return root / "torch" / "include"


def _fetch(source: TorchSource, target: Path) -> None:
    file = find([f"torch=={source.version}"], source.platform, TORCH_PYTHON)[0]
    if file.sha256 != source.sha256:
        raise TorchwheelError(
            f"hash mismatch: the index has torch {source.version} with sha256 {file.sha256}, "
            f"the lock has {source.sha256}; nothing was taken"
        )
    try:
        archive = RemoteArchive(file.url)
        names = archive.members(lambda name: name.startswith(_INCLUDE))
        archive.fetch(names)
        extract(names, archive.read, source, target)
    except NoRangesError:
        _fetch_whole(source, target)


def _fetch_whole(source: TorchSource, target: Path) -> None:
    """The fallback: the whole wheel, with its hash."""
    with tempfile.TemporaryDirectory(dir=target) as folder:
        (wheel,) = download(
            {f"torch=={source.version}": source.sha256},
            Path(folder),
            target_options(source.platform, TORCH_PYTHON),
            f"downloading torch {source.version} for its headers",
        )
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.startswith(_INCLUDE) and n[-1] != "/"]
            extract(names, archive.read, source, target)


def extract(
    names: list[str], read: Callable[[str], bytes], source: TorchSource, target: Path
) -> None:
    """Write `names` below `target`; each is checked against RECORD, and that against the lock."""
    where = f"torch {source.version}"
    record = read(f"torch-{source.version}.dist-info/RECORD")
    if hashlib.sha256(record).hexdigest() != source.record_sha256:
        raise TorchwheelError(f"hash mismatch: {where}: its RECORD is not the one in the lock")
    rows = csv.reader(record.decode("utf-8").splitlines())
    hashes = {row[0]: row[1] for row in rows if len(row) == 3}
    if not names:
        raise TorchwheelError(f"{where}: its wheel holds no headers")
    for name in names:
        data = read(name)
        if hashes.get(name) != record_hash(hashlib.sha256(data).digest()):
            raise TorchwheelError(
                f"hash mismatch: {where}: {name} is not the file its RECORD names"
            )
        path = inside(target, name, where)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
