"""From what the matrix asks for to a verified toolkit."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from torchwheel.console import Progress
from torchwheel.errors import UsageError
from torchwheel.files import write_text
from torchwheel.matrix.toolkit_model import Toolkit
from torchwheel.toolkit import source_pypi, source_system
from torchwheel.toolkit.host import HostCompiler, check_bounds
from torchwheel.toolkit.verify import agreed_release, probe


def provide(
    wanted: Toolkit,
    archs: Sequence[str],
    platform: str,
    host: HostCompiler,
    cache: Path,
    progress: Progress,
) -> Path:
    """The toolkit's folder, provisioned or found, and verified for `archs` and `host` once."""
    if wanted.backend != "cuda":
        raise UsageError(f"toolkit {wanted.name}: {wanted.backend} is built in a container only")
    check_bounds(host, wanted.host_compiler.model_dump(exclude_none=True), f"CUDA {wanted.version}")
    if wanted.source == "pypi":
        root, identity = source_pypi.provision(wanted.version, platform, cache, progress)
    elif wanted.source == "system":
        root, identity = source_system.locate()
    else:
        raise UsageError(
            f"toolkit {wanted.name}: source {wanted.source!r} is built in a container only"
        )
    facts = [identity, wanted.version, *archs, str(host.path), host.version]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    marker = cache / "verified" / f"{key}.json"
    if not marker.exists():
        progress.step(f"{wanted.name}: verifying, a probe kernel for {';'.join(archs)}")
        release = agreed_release(root, wanted.version)
        probe(root, archs, str(host.path))
        write_text(marker, json.dumps({"release": release, "facts": facts}) + "\n")
    return root
