"""Rules about ordinary projects, whose own build makes the wheels, and about all others."""

from collections.abc import Iterator

from torchwheel.matrix.document import MatrixFinding
from torchwheel.matrix.project_source import parse_source
from torchwheel.matrix.sections import Matrix
from torchwheel.text import nearest, quote


def ordinary_alone(matrix: Matrix) -> Iterator[MatrixFinding]:
    """The flavour `ordinary` stands alone: a project has its own build or torchwheel's builder."""
    if matrix.abis.ordinary is None:
        if matrix.build is not None:
            yield (
                ("build",),
                "says how a project's own build is called; expected ordinary: {} under abis",
            )
        return
    for name in ("stable", "aten", "pure", "universal"):
        if getattr(matrix.abis, name) is not None:
            yield (
                ("abis", name),
                "goes with torchwheel's builder, and abis.ordinary with the project's own; "
                "expected one of them",
            )


def built_once(matrix: Matrix) -> Iterator[MatrixFinding]:
    """A wheel of shards is built once."""
    if matrix.own_build.shards > 1 and matrix.gates.reproducible:
        yield (
            ("build", "shards"),
            "divides a build, and gates.reproducible wants two whole ones; expected one of them",
        )


def toolkits_exist(matrix: Matrix) -> Iterator[MatrixFinding]:
    """Variables of a toolkit are of one that the matrix has."""
    for name in matrix.own_build.toolkit_environment:
        if name not in matrix.toolkits:
            known = nearest(name, matrix.toolkits)
            yield ("build", "toolkit_environment", name), f"is no toolkit of the matrix; {known}"


def source_possible(matrix: Matrix) -> Iterator[MatrixFinding]:
    """What is fetched or unpacked is an ordinary project; a hash is of an sdist."""
    source = parse_source(matrix.project.source)
    if source.kind != "folder" and matrix.abis.ordinary is None:
        yield (
            ("project", "source"),
            f"{quote(matrix.project.source)} is no folder; such a source goes with abis.ordinary",
        )
    if matrix.project.sha256 and source.kind not in ("sdist", "release"):
        yield (
            ("project", "sha256"),
            "is the hash of an sdist; expected a source NAME==VERSION or a file",
        )


def smoke_declared(matrix: Matrix) -> Iterator[MatrixFinding]:
    """Smoke tests are under `smoke`, of an ordinary project under `build`."""
    smoke = matrix.smoke
    if matrix.abis.ordinary:
        if smoke.tests:
            yield ("smoke", "tests"), "of an ordinary project are build.tests; expected them there"
        if smoke.torch:
            yield ("smoke", "torch"), "is the torch that each wheel is built for; take it out"
        return
    for key in ("tests", "torch"):
        if getattr(smoke, key) is None:
            yield ("smoke",), f'key "{key}" is missing'
