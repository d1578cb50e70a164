"""What cibuildwheel would be told about each variant, without building anything."""

from pathlib import Path

from torchwheel.console import Progress
from torchwheel.errors import UsageError
from torchwheel.image.build import described
from torchwheel.image.engine import find_engine
from torchwheel.image.of_variant import image_of
from torchwheel.matrix.load import load
from torchwheel.matrix.select import select
from torchwheel.pipeline.cibuildwheel import toml
from torchwheel.pipeline.container_options import options_of, torch_of
from torchwheel.pipeline.request import Request
from torchwheel.pipeline.run import Run
from torchwheel.toolkit.cache import cache_folder


def show(matrix_file: Path, request: Request, dist: Path, progress: Progress) -> str:
    """The options of the native variants that `request` names, one TOML table after another."""
    matrix = load(matrix_file)
    engine, root = find_engine(), matrix_file.resolve().parent
    native = [v for v in select(matrix, request.variants or ("default",)) if v.toolkit]
    if not native:
        raise UsageError("none of these variants has native code: nothing is built in a container")
    run = Run(matrix, root, dist.resolve(), cache_folder(), "", (), progress, engine)
    parts = []
    for variant in native:
        built = described(engine, image_of(matrix, variant, root))
        options = options_of(run, variant, engine.name, built, torch_of(run, variant))
        parts.append(f"# {variant.id}: cibuildwheel --only {options.identifier}\n{toml(options)}")
    return "\n".join(parts)
