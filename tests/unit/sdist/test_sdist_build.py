"""The parts of a build that need no compiler: its CUDA_HOME, steps, errors and local version."""

import contextlib
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from programmaker import program
from torchwheel import programs
from torchwheel.inspect.build_script import BuildScript, Mention
from torchwheel.pipeline.frontend import (
    build_wheel,
    compile_step,
    failure_reason,
    find_launcher,
)
from torchwheel.sdist.build import stable_offer
from torchwheel.sdist.build_folder import (
    LOCK,
    LOG,
    OBJECTS,
    copy_source,
    hold_build_folder,
    inputs_of,
    keep_objects,
    link_siblings,
)
from torchwheel.sdist.request import SdistRequest
from torchwheel.smoke.testing import import_torch
from torchwheel.smoke.trial_environment import Environment
from torchwheel.toolkit.toolkit_home import (
    DRIVER_STUB,
    assemble_cuda_home,
    assemble_rocm_home,
    cuda_program,
)
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect.elf import Library, UndefinedSymbol, read_library
from torchwheel_runtime.tasks import Count

CXX = Path("/usr/bin/g++")
CUDA_H = """\
typedef int CUresult;
#define CUDAAPI
#define cuMemFree cuMemFree_v2
CUresult CUDAAPI cuInit(unsigned int flags);
CUresult CUDAAPI cuMemFree(unsigned long long pointer);
"""


def tree(root: Path, *files: str) -> Path:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{root.name}/{name}")
    return root


@pytest.fixture
def toolkit(tmp_path):
    made = tree(
        tmp_path / "toolkit",
        "bin/ptxas",
        "nvvm/bin/cicc",
        "include/cuda_runtime.h",
        "include/crt/host_config.h",
        "lib/libcudart.so.13",
        "lib/libcudart_static.a",
    )
    (made / "lib64").symlink_to("lib")
    program(made / "bin" / "nvcc", 'echo "$0" "$@"')
    return made


@pytest.fixture
def site(tmp_path):
    """site-packages with what torch for CUDA 13, and for CUDA 12, is installed with."""
    return tree(
        tmp_path / "site",
        "nvidia/cu13/include/cublas_v2.h",
        "nvidia/cu13/include/cuda_runtime.h",
        "nvidia/cu13/lib/libcublas.so.13",
        "nvidia/cu13/lib/libcudart.so.13",
        "nvidia/cudnn/include/cudnn.h",
        "nvidia/cudnn/lib/libcudnn.so.9",
        "nvidia/__init__.py",
    )


def test_a_cuda_home_has_the_toolkit_and_what_torch_was_installed_with(tmp_path, toolkit, site):
    home = assemble_cuda_home(tmp_path / "home", toolkit, site, (), CXX)
    read = {
        name: (home / name).read_text()
        for name in (
            "include/cublas_v2.h",
            "include/cudnn.h",
            "include/crt/host_config.h",
            "include/cuda_runtime.h",
            "lib64/libcudart.so",
            "lib64/libcudart_static.a",
            "lib/libcublas.so",
            "lib64/libcudnn.so",
            "bin/ptxas",
            "nvvm/bin/cicc",
        )
    }
    # Where both have a file it is the toolkit's.
    assert read["include/cuda_runtime.h"] == "toolkit/include/cuda_runtime.h"
    assert read["lib64/libcudart.so"] == "toolkit/lib/libcudart.so.13"
    assert read["lib/libcublas.so"] == "site/nvidia/cu13/lib/libcublas.so.13"
    assert sorted(path.name for path in (toolkit / "lib").iterdir()) == [
        "libcudart.so.13",
        "libcudart_static.a",
    ]


def test_a_project_links_the_drivers_library_where_no_driver_is(tmp_path, toolkit, site):
    (toolkit / "include" / "cuda.h").write_text(CUDA_H)
    home = assemble_cuda_home(tmp_path / "home", toolkit, site, (), CXX)
    source, library = tmp_path / "a.cpp", tmp_path / "a.so"
    source.write_text(
        f'extern "C" {{\n{CUDA_H}int start() {{ return cuInit(0) + cuMemFree(0); }}\n}}\n'
    )
    # Each function has to be found, not only the library.
    call = [CXX, "-shared", "-fPIC", "-nostdlib", "-Wl,--no-undefined,--no-as-needed", source]
    subprocess.run([*call, f"-L{home}/lib64/stubs", "-lcuda", "-o", library], check=True)
    assert "libcuda.so.1" in read_library(library, library.name).needed


def test_the_driver_stub_of_a_toolkit_stays(tmp_path, toolkit, site):
    (toolkit / "include" / "cuda.h").write_text(CUDA_H)
    tree(toolkit, "lib/stubs/libcuda.so")
    home = assemble_cuda_home(tmp_path / "home", toolkit, site, (), CXX)
    assert (home / DRIVER_STUB).read_text() == "toolkit/lib/stubs/libcuda.so"


def test_rocm_has_the_libraries_of_the_systems_packages(tmp_path):
    rocm, system = tmp_path / "rocm", tmp_path / "usr"
    tree(rocm, "bin/hipcc", "bin/hipconfig", "include/hip/hip_runtime.h", "lib/libamdhip64.so")
    tree(system, "include/hip/hip_runtime.h", "include/hipblas/hipblas.h", "include/stdio.h")
    tree(system, "lib/x86_64-linux-gnu/libhipblas.so", "lib/x86_64-linux-gnu/libc.so")
    home = assemble_rocm_home(tmp_path / "home", rocm, ("echo", "hipcc"), system)
    assert (home / "include" / "hip" / "hip_runtime.h").read_text().startswith("rocm/")
    assert (home / "include" / "hipblas" / "hipblas.h").read_text().startswith("usr/")
    assert sorted(path.name for path in (home / "include").iterdir()) == ["hip", "hipblas"]
    libraries = sorted(path.name for path in (home / "lib").iterdir())
    assert libraries == ["libamdhip64.so", "libhipblas.so"]
    assert sorted(path.name for path in (home / "bin").iterdir()) == ["hipcc", "hipconfig"]


@pytest.mark.parametrize("launcher", [(), ("env", "X=a b")])
def test_nvcc_is_called_where_torchs_libraries_are(tmp_path, toolkit, site, launcher):
    """CMake asks it for the toolkit's folder, which it takes from the path it is called by."""
    nvcc = (*launcher, str(cuda_program(tmp_path / "home", toolkit)))
    home = assemble_cuda_home(tmp_path / "home", toolkit, site, nvcc, CXX)
    done = subprocess.run(
        [str(home / "bin" / "nvcc"), "-c", "a b.cu"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{home}/compiler/nvcc -c a b.cu\n"
    assert (home / "compiler" / ".." / "include" / "cublas_v2.h").is_file()
    assert cuda_program(home, Path("/usr")) == Path("/usr/bin/nvcc")


def test_a_distributions_toolkit_is_taken_as_it_is(tmp_path, site):
    assert assemble_cuda_home(tmp_path / "home", Path("/usr"), site, (), CXX) == Path("/usr")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[2/9] /cuda/bin/nvcc -I/x -c -c '/a/b/x.cu' -o x.o", None),
        ("[2/9] /cuda/bin/nvcc -I/x -c -c /a/b/x.cu -o x.o", ("compiled x.cu", Count(2, 9))),
        ("[2/9] /rocm/bin/hipcc  -I/x -c -c /a/b/x.hip -o x.o", ("compiled x.hip", Count(2, 9))),
        ("[1/9] c++ -MMD -c /a/b/x.cpp -o x.o", ("compiled x.cpp", Count(1, 9))),
        ("gcc -pthread -fPIC -Icsrc -c csrc/x.cpp -o build/x.o -O3", ("compiling x.cpp", None)),
        ("g++ -shared x.o -o x.so", None),
        ("running build_ext", None),
        ("", None),
    ],
)
def test_a_compilers_line_is_a_step(line, says):
    assert compile_step(line) == says


# What a build printed, and after the arrow the reason that is told.
REASONS = """
a.cpp:3:1: error: x was not declared
error: command '/usr/bin/gcc' failed
-> a.cpp:3:1: error: x was not declared

a.c:1:2: error: x
error: Command '['gcc', '-c', 'a.c']' returned non-zero exit status 1.
-> a.c:1:2: error: x

/p/a.cu(12): error: no y
RuntimeError: Error compiling objects for extension
-> /p/a.cu(12): error: no y

a.cpp:1:10: fatal error: z.h: No such file
b.cpp:1:1: error: later
error: command 'g++' failed
-> a.cpp:1:10: fatal error: z.h: No such file

/usr/bin/ld: cannot find -lx
error: command '/usr/bin/g++' failed
-> /usr/bin/ld: cannot find -lx

error: command 'g++' failed: No such file
-> command 'g++' failed: No such file

ModuleNotFoundError: No module named 'numpy'
-> ModuleNotFoundError: No module named 'numpy'

a.cpp:3:1: error: x
torchwheel: it is thus
-> it is thus

torchwheel: the project hard-codes the archs 7.5
RuntimeError: Error compiling objects for extension
-> the project hard-codes the archs 7.5

ninja: error: build.ninja:31: multiple rules generate a.o
RuntimeError: Error compiling objects for extension
-> ninja: error: build.ninja:31: multiple rules generate a.o

building
-> otherwise

urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>
-> urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>

Exception: needs torch 9
.
later
-> Exception: needs torch 9

AssertionError
-> AssertionError

/p/a.cu(12): error: no y
subprocess.CalledProcessError: Command 'ninja'
-> /p/a.cu(12): error: no y

subprocess.CalledProcessError: Command 'git' returned 128
-> subprocess.CalledProcessError: Command 'git' returned 128

# Errors that go on in the next lines.
error: Error: setup script specifies an absolute path:
.
    /home/me/demo/a.cpp
.
setup() arguments must *always* be /-separated paths relative to the
-> Error: setup script specifies an absolute path: /home/me/demo/a.cpp

RuntimeError:\x20
The detected CUDA version (12.1) mismatches the version that was used to compile
PyTorch (13.0). Please make sure to use the same CUDA versions.
.
ERROR Backend subprocess exited when trying to invoke build_wheel
-> RuntimeError: The detected CUDA version (12.1) mismatches the version that was used to compile
-> PyTorch (13.0). Please make sure to use the same CUDA versions.

CMake Error at CMakeLists.txt:4 (target_link_libraries):
  Target "x" links to:
.
    CUDA::cublas
.
  but the target was not found.  Possible reasons include:
.
.
-- Generating done
*** CMake configuration failed
-> CMake Error at CMakeLists.txt:4 (target_link_libraries): Target "x" links to: CUDA::cublas but
-> the target was not found. Possible reasons include:

CMake Error at CMakeLists.txt:4 (find_package):
  Could not find a package configuration file provided by "Foo"
CMake Error at CMakeLists.txt:9 (add_library): later
subprocess.CalledProcessError: Command '['cmake', '..']' returned non-zero
-> CMake Error at CMakeLists.txt:4 (find_package): Could not find a package configuration file
-> provided by "Foo"

# uv's.
error: No solution found when resolving dependencies
  cause: Because fast-soft-sort was not found in the package registry, we can conclude that x.
.
cibuildwheel: error: Command ['sh'] failed with code 1.
-> No solution found when resolving dependencies cause: Because fast-soft-sort was not found in the
-> package registry, we can conclude that x.

# As a plugin of setuptools, scikit-build-core raises an error.
CMake Error at F.cmake:290 (message):
  Could NOT find CUDAToolkit (missing: CUDA_CUDART)
-- Configuring incomplete, errors occurred!
Traceback (most recent call last):
scikit_build_core.errors.FailedLiveProcessError: CMake configuration failed
ERROR Backend subprocess exited when trying to invoke build_wheel
-> CMake Error at F.cmake:290 (message): Could NOT find CUDAToolkit (missing: CUDA_CUDART)

# What CMake's generators and scikit-build-core say of a compiler that failed.
/p/a.cu(12): error: no y
ninja: build stopped: subcommand failed.
-> /p/a.cu(12): error: no y

a.cpp:3:1: error: x
gmake[2]: *** [x.dir/a.cpp.o] Error 1
-> a.cpp:3:1: error: x

a.cpp:3:1: error: x
*** CMake build failed
-> a.cpp:3:1: error: x

*** CMake build failed
-> *** CMake build failed

# Our own builder has said it, and no line of a compiler has a place.
error: building obj/a.o failed: At end of source: error: x
At end of source: error: x
ninja: build stopped: subcommand failed.
-> building obj/a.o failed: At end of source: error: x

# SystemExit("needs torch 9"), as the frontend of a container tells it.
running build_ext
needs torch 9
.
TIP disable isolation
ERROR Backend subprocess exited when trying to invoke build_wheel
cibuildwheel: error: Command failed
-> Backend subprocess exited when trying to invoke build_wheel; its last line: needs torch 9
"""


@pytest.mark.parametrize("case", REASONS.strip().split("\n\n"))
def test_the_line_that_says_why(tmp_path, case):
    lines = [line for line in case.splitlines() if not line.startswith("# ")]
    says = " ".join(line.removeprefix("-> ") for line in lines if line.startswith("-> "))
    printed = [line if line != "." else "" for line in lines if not line.startswith("-> ")]
    log = tmp_path / "build.log"
    log.write_text("\n".join(["cc1plus: note", *printed, ""]))
    assert failure_reason(log, "otherwise") == says


def test_a_backend_that_says_why_without_an_error(tmp_path):
    log = tmp_path / "build.log"
    ended = "Backend subprocess exited when trying to invoke build_wheel"
    log.write_text("running build\nneeds torch 9\n\n")
    assert failure_reason(log, ended) == f"{ended}; its last line: needs torch 9"
    log.write_text("")
    assert failure_reason(log, ended) == ended


def test_a_build_that_hangs_is_one_line(tmp_path, monkeypatch):
    source, log = tmp_path / "source", tmp_path / "build.log"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "hangs"\nbackend-path = ["."]\n'
    )
    (source / "hangs.py").write_text(
        "import time\ndef build_wheel(*_, **__):\n    print('asks', flush=True)\n"
        "    time.sleep(99)\n"
    )
    monkeypatch.setattr(programs, "SILENCE", 1)
    says = rf"^the build printed nothing and computed nothing for 1 s, .*{log}\)$"
    with pytest.raises(TorchwheelError, match=says):
        build_wheel(source, {}, tmp_path, log, lambda _: None, prepare=lambda _: None)
    assert log.read_text() == "asks\n"


def test_a_python_without_torch_is_one_line(tmp_path):
    says = "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1"
    python = program(tmp_path / "python", says)
    with pytest.raises(
        TorchwheelError, match=r"torch cannot be imported .* No module named 'torch'"
    ):
        import_torch(Environment(python, {}, tmp_path), tmp_path)


def test_a_build_leaves_its_log_alone_in_the_cache(tmp_path):
    folder = tmp_path / "ordinary"

    def stopped() -> None:
        with hold_build_folder(folder, Quiet()) as place:
            assert {path.name for path in place.iterdir()} <= {LOCK, LOG}
            (place / "source").mkdir()
            (place / "source" / "setup.py").touch()
            (place / "constraints.txt").touch()
            (place / LOG).touch()
            raise TorchwheelError("stop")

    for _ in range(2):
        with pytest.raises(TorchwheelError):
            stopped()
        assert sorted(path.name for path in folder.iterdir()) == [LOG, LOCK]


@pytest.mark.parametrize(
    ("inputs", "stopped", "kept"),
    [
        ("the same", True, ["temp/a.o"]),
        # ninja would go by the times of files alone.
        ("others", True, []),
        # The wheel is there.
        ("the same", False, []),
    ],
)
def test_the_objects_of_a_build_that_did_not_end_are_there_for_the_same(
    tmp_path, inputs, stopped, kept
):
    with contextlib.suppress(KeyboardInterrupt), hold_build_folder(tmp_path, Quiet()) as place:
        objects = keep_objects(place, "the same")
        for name in ("temp/a.o", "lib.linux/half.so"):
            (objects / name).parent.mkdir()
            (objects / name).touch()
        if stopped:
            raise KeyboardInterrupt
    assert (tmp_path / OBJECTS).exists() == stopped
    with hold_build_folder(tmp_path, Quiet()) as place:
        again = keep_objects(place, inputs)
        assert again == objects
        found = [str(path.relative_to(again)) for path in again.rglob("*.*") if path.is_file()]
        assert found == kept, "a library may be half-linked"


def test_what_decides_the_objects_of_a_build(tmp_path):
    project = tree(tmp_path / "demo", "setup.py", "csrc/a.cpp", ".git/index")
    variables = {"CFLAGS": "-O1", "NVCC_APPEND_FLAGS": None, "MAX_JOBS": "2", "SHLVL": "1"}
    first = inputs_of(project, variables, ("2.13.0",))
    (project / ".git" / "index").write_text("another")
    same = {**variables, "MAX_JOBS": "9", "SCCACHE_SERVER_UDS": "/tmp/x"}  # noqa: S108 - a text
    assert inputs_of(project, same, ("2.13.0",)) == first
    others = [
        inputs_of(project, {**variables, "NVCC_APPEND_FLAGS": "-G"}, ("2.13.0",)),
        inputs_of(project, variables, ("2.14.0",)),
    ]
    # An older file, as of another release: ninja goes by times alone.
    (project / "csrc" / "a.cpp").write_text("another")
    os.utime(project / "csrc" / "a.cpp", (0, 0))
    others.append(inputs_of(project, variables, ("2.13.0",)))
    assert len({first, *others}) == 4


def test_what_lies_beside_a_project_lies_beside_its_copy_on_request(tmp_path):
    project = tree(tmp_path / "home" / "repo" / "demo", "setup.py", "csrc/a.cpp")
    tree(tmp_path / "home", "repo/README.md", "VERSION")
    copy = copy_source(project, tmp_path / "copies")
    assert (copy / "csrc" / "a.cpp").read_text() == "demo/csrc/a.cpp"
    assert sorted(path.name for path in copy.parent.iterdir()) == ["demo"]
    link_siblings(project, copy)
    assert (copy / ".." / "README.md").read_text() == "home/repo/README.md"
    assert (copy / ".." / ".." / "VERSION").read_text() == "home/VERSION"
    assert (copy / ".." / "demo").resolve() == copy


@pytest.mark.parametrize(
    ("needs", "target", "since"),
    [
        (("aoti_torch_get_data_ptr", "PyErr_SetString"), "2.11", "2.11"),
        # A symbol that came after the release that the project names.
        (("torch_from_blob", "torch_library_impl"), "2.10", "2.11"),
        (("aoti_torch_get_data_ptr", "_ZN2at4_ops3add4callE"), "2.11", None),
        (("aoti_torch_get_data_ptr", "torch_no_such_thing"), "2.11", None),
        (("PyErr_SetString",), "2.11", None),
        (("aoti_torch_get_data_ptr",), None, None),
    ],
)
def test_a_library_of_the_stable_abi_could_serve_many_torches(needs, target, since):
    library = Library("x/_C.so", "x86_64", None, (), tuple(map(UndefinedSymbol, needs)))
    script = BuildScript({}, {}, stable=Mention(target, "setup.py:1") if target else None)
    offer = stable_offer([library], script)
    assert (f"torch>={since};" in offer) if since else not offer


def test_the_sccache_of_an_environment_that_is_not_on_the_path_is_found(tmp_path, monkeypatch):
    sccache = program(tmp_path / "venv" / "bin" / "sccache", "echo sccache 0.16.0")
    monkeypatch.setattr("sys.executable", str(sccache.with_name("python")))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_launcher(print) == (str(sccache),)


def test_a_planted_sccache_is_no_launcher(tmp_path, monkeypatch):
    program(tmp_path / "planted" / "sccache", "echo sccache 0.16.0")
    (tmp_path / "planted").chmod(0o777)
    good = program(tmp_path / "good" / "sccache", "echo sccache 0.9.0")
    monkeypatch.setenv("PATH", f"{tmp_path}/planted:{tmp_path}/good")
    said = []
    assert find_launcher(said.append) == (str(good),)
    assert [text.startswith(f"{tmp_path}/planted/sccache: is not used: ") for text in said] == [
        True
    ]
    # One whose server listens on a port of the machine.
    program(good, "echo sccache 0.8.2")
    del said[:]
    assert find_launcher(said.append) == ()
    assert said[1] == (
        f"{good}: is not used: expected sccache 0.9 or newer, whose server no other user can "
        'reach, found "sccache 0.8.2"; update it'
    )


@pytest.mark.parametrize(
    ("cache", "temporary", "place"),
    [
        ("/home/me/.cache/torchwheel", "/scratch", "/home/me/.cache/torchwheel/build"),
        ("/home/my name/cache", "/scratch", f"/scratch/torchwheel-build-{os.getuid()}"),
        ("/home/me, you", "/my scratch", f"/tmp/torchwheel-build-{os.getuid()}"),  # noqa: S108
    ],
)
def test_the_folder_of_a_build_has_no_blanks(monkeypatch, cache, temporary, place):
    """torch reads CXX as words, and nvcc calls g++ by a shell, without quotes around flags."""
    monkeypatch.setattr("tempfile.tempdir", temporary)
    request = SdistRequest(Path("/home/my name/my project"), Path("dist"))
    assert request.build_folder(Path(cache)).parent == Path(place)


@pytest.mark.parametrize("name", ["my project", "a,b=c", "it's", "ördner"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "sdist"])
def test_the_copy_of_a_project_has_no_blanks(tmp_path, name, packed):
    source = tree(tmp_path / name, "setup.py")
    if packed:
        with tarfile.open(tmp_path / "project.tar.gz", "w:gz") as archive:
            archive.add(source, name)
        source = tmp_path / "project.tar.gz"
    copy = copy_source(source, tmp_path / "copies")
    assert (copy / "setup.py").is_file()
    assert re.fullmatch(r"\w+", copy.name, re.ASCII)
