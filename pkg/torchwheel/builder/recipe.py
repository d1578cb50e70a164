"""From a library's sources and a target to the whole build, as data."""

import dataclasses
from collections.abc import Mapping, Sequence

from torchwheel.builder.backend import Backend
from torchwheel.builder.cuda import cuda
from torchwheel.builder.extension import Extension
from torchwheel.builder.flavour import Flavour, aten, ordinary, stable
from torchwheel.builder.objects import object_groups, sysroot_flags
from torchwheel.builder.plan import Plan, Step
from torchwheel.builder.rocm import rocm
from torchwheel.builder.sources import Sources
from torchwheel.builder.target import Target

_BACKENDS = {"cuda": cuda, "rocm": rocm}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A build in parts.

    Attributes:
        groups: compile steps by group; the objects of a group can be shared.
        target: what is built.
        backend: the GPU platform's part.
        flavour: the ABI's part.
    """

    groups: Mapping[str, tuple[Step, ...]]
    target: Target
    backend: Backend
    flavour: Flavour

    def whole(self) -> Plan:
        """Everything in one folder."""
        steps = tuple(step for group in self.groups.values() for step in group)
        library = self.linked([step.output for step in steps])
        return Plan((*steps, *library.steps), library.outputs)

    def linked(self, objects: Sequence[str]) -> Plan:
        """From objects to the library."""
        stubs = [_stub_step(soname, self.target) for soname in self.flavour.stubs]
        link = self._link_step(objects, [stub.output for stub in stubs])
        return Plan((*stubs, link), (link.output,))

    def _link_step(self, objects: Sequence[str], stubs: Sequence[str]) -> Step:
        flavour = self.flavour
        command = (
            self.target.cxx,
            "-shared",
            *sysroot_flags(self.target),
            *flavour.link,
            f"-Wl,--version-script={flavour.exports}",
            "-Wl,--gc-sections",
            # The symbol table holds temporary names with a process id in them.
            "-Wl,--strip-all",
            "-Wl,--build-id=none",
            "-o",
            flavour.output,
            *objects,
            "-Wl,--no-as-needed",
            *stubs,
            "-Wl,--as-needed",
            *self.backend.link,
        )
        inputs = (*objects, *stubs, str(flavour.exports))
        return Step(f"link {flavour.output}", command, inputs, flavour.output)


def make_recipe(extension: Extension, sources: Sources, target: Target) -> Recipe:
    """The build of the extension's `sources` for `target`."""
    backend = _BACKENDS[target.toolkit.backend](target)
    if extension.ordinary:
        flavour = ordinary(target, extension.module)
    else:
        flavour = stable(target) if target.abi == "stable" else aten(target, extension.module)
    groups = object_groups(extension, sources, target, backend, flavour)
    return Recipe(groups, target, backend, flavour)


def _stub_step(soname: str, target: Target) -> Step:
    """An empty library with a soname of torch's, to link against: torch itself is not needed."""
    output = f"stub/{soname}"
    command = (target.cxx, "-shared", "-nostdlib", f"-Wl,-soname,{soname}")
    return Step(f"stub {soname}", (*command, "-x", "c", "/dev/null", "-o", output), (), output)
