"""What a project says of its own build: by its matrix.yaml, else by the archs that it names."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from torchwheel.compilers.gpu_compiler import codes_of, fault_of
from torchwheel.inspect.build_script import BuildScript, hard_coded_archs
from torchwheel.inspect.project_scripts import read_scripts
from torchwheel.matrix.load import parse
from torchwheel.matrix.sections import ArchsBy, Matrix
from torchwheel.sdist.request import SdistRequest
from torchwheel.text_files import read_text
from torchwheel_runtime.arch.lists import NamedArchs, arch_list
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.errors import UsageError

MATRIX = "matrix.yaml"
_OURS = re.compile(r"^abis:", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class ProjectSettings:
    """What a project's files say of its build.

    Attributes:
        matrix: that of an ordinary project.
        script: what its build scripts name; None if they cannot be read.
    """

    matrix: Matrix | None
    script: BuildScript | None

    def complete(self, request: SdistRequest) -> SdistRequest:
        """The call with what the matrix says and the call does not.

        What a gate finds is for the caller to allow, not for the project.
        """
        if self.matrix is None:
            return request
        own = self.matrix.own_build
        return dataclasses.replace(
            request,
            requires=(*own.requires, *request.requires),
            settings={**own.config_settings, **request.settings},
            imports=request.imports or own.imports,
        )

    def variables(self, toolkit: str) -> Mapping[str, str]:
        """The variables of the matrix for its setup.py, in a build with a toolkit."""
        return self.matrix.own_build.environment_for(toolkit) if self.matrix else {}

    def archs(self, release: ToolkitRelease) -> tuple[NamedArchs | None, ArchsBy]:
        """The archs to compile for if the call names none, and who decides about them."""
        if self.matrix:
            toolkit = self.matrix.toolkits.get(release.name)
            named = NamedArchs(arch_list(toolkit.archs), MATRIX) if toolkit else None
            return named, self.matrix.own_build.archs_by
        archs, by = hard_coded_archs(self.script, release) if self.script else ((), "environment")
        return NamedArchs(arch_list(archs), "setup.py") if archs else None, by

    def check_archs(self, release: ToolkitRelease, wanted: str) -> str:
        """A line about the archs that setup.py hard-codes, in a build for those of `wanted`.

        Raises:
            UsageError: its code needs archs that are not wanted.
        """
        named, by = self.archs(release)
        if self.matrix or named is None:
            return ""
        if by == "replaced":
            gets = "these" if wanted == named.text else f"{wanted} in their place"
            return f"setup.py hard-codes the archs {named.text}: nvcc gets {gets}"
        if fault := fault_of(codes_of(named.text), wanted, by):
            raise UsageError(f"setup.py: {fault}, or have nvcc replace them: --archs-by replaced")
        return f"setup.py hard-codes the archs {named.text}: it is built for {wanted}"

    def says(self, toolkit: str) -> str:
        """A line about what is taken of the matrix; empty if nothing is."""
        if self.matrix is None:
            return ""
        own, archs = self.matrix.own_build, self.matrix.toolkits.get(toolkit)
        taken = [
            *([f"archs {arch_list(archs.archs)} ({own.archs_by})"] if archs else []),
            *(f"{name}={value}" for name, value in self.variables(toolkit).items()),
            *(f"--with {text}" for text in own.requires),
            *(f"--config-setting={name}={text}" for name, text in own.config_settings.items()),
        ]
        return f"{MATRIX} of the project: {', '.join(taken)}" if taken else ""


def read_settings(project: Path) -> ProjectSettings:
    """Read the files of a project's folder; nothing of it is run.

    Raises:
        UsageError: its matrix.yaml is one of torchwheel's, and wrong.
    """
    try:
        script: BuildScript | None = read_scripts(project)
    except UsageError:
        script = None  # The build itself will say so.
    return ProjectSettings(_matrix(project / MATRIX), script)


def _matrix(file: Path) -> Matrix | None:
    """The matrix of an ordinary project; another one, or another tool's file, says nothing here."""
    text = ""
    try:
        text = read_text(file)
        matrix = parse(text, MATRIX)
    except UsageError:
        if _OURS.search(text):
            raise
        return None
    return matrix if matrix.abis.ordinary else None
