"""The sections of `matrix.yaml` that say where wheels are built and tried: images, runners."""

from typing import Annotated

from pydantic import Field

from torchwheel.matrix.forms import (
    GlibcVersion,
    PythonVersion,
    RelativePath,
    RunnerLabel,
    SuiteName,
)
from torchwheel.matrix.section import Section

Labels = Annotated[tuple[RunnerLabel, ...], Field(min_length=1)]


class Containers(Section):
    """The container images that wheels are built in."""

    recipes: Annotated[RelativePath, Field(description="Folder of the image recipes.")] = "docker"
    base: Annotated[
        SuiteName, Field(description="Debian release whose C library the wheels are linked with.")
    ]
    python: Annotated[
        PythonVersion, Field(description="Python that builds wheels which are for any Python.")
    ]
    glibc: Annotated[
        GlibcVersion | None,
        Field(description="The newest C library that a wheel built in them may need."),
    ] = None
    emulated: Annotated[
        SuiteName | None,
        Field(description="Debian release with torch, to try wheels of another machine in."),
    ] = None


class Machines(Section):
    """CI's machines for the wheels of one platform, by the labels of their runners."""

    build: Annotated[Labels, Field(description="Where they are built.")]
    cpu: Annotated[
        Labels | None, Field(description="Where they are tried without a GPU; default: build.")
    ] = None
    cuda: Annotated[Labels | None, Field(description="A runner with an NVIDIA GPU.")] = None
    rocm: Annotated[Labels | None, Field(description="A runner with an AMD GPU.")] = None
