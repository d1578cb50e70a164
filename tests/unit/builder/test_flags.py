"""An extension's own flags: in which commands they are, and which are refused."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets import CUDA_ATEN, CUDA_STABLE, EVERY, EXTENSION, PY312, ROCM_STABLE, sources
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder import variables
from torchwheel_runtime.builder.extension import Extension, Operator
from torchwheel_runtime.builder.flags import Flags, Probe, check_flags
from torchwheel_runtime.builder.recipe import Recipe
from torchwheel_runtime.builder.sources import sources_of
from torchwheel_runtime.builder.target import Target
from torchwheel_runtime.errors import UsageError

FLAGGED = dataclasses.replace(
    EXTENSION,
    flags=Flags(
        cxx=("-O3",),
        cuda=("--use_fast_math",),
        hip=("-ffast-math",),
        link=("-Wl,-z,now",),
        libraries=("aio",),
        library_dirs=("lib",),
    ),
    toolkit_flags={
        "cuda>=12.8": Flags(cuda=("--split-compile=0",)),
        "cuda<12.8": Flags(cuda=("--old",)),
        "rocm >= 6, < 7": Flags(hip=("--six",), libraries=("hipblas",)),
    },
    probes=(Probe("avx2", Flags(cxx=("-mavx2",), cuda=("-DAVX2",)), cpu=("avx2",)),),
)


def commands(target: Target, extension: Extension = FLAGGED) -> dict[str, tuple[str, ...]]:
    plan = Recipe(extension, sources(target), target).whole()
    return {step.label: step.command for step in plan}


def test_each_language_gets_its_own_flags():
    made = commands(CUDA_STABLE)
    plain = commands(CUDA_STABLE, EXTENSION)
    device, host = made["CUDA a.cu"], made["C++ host.cpp"]
    assert set(device) - set(plain["CUDA a.cu"]) == {"--use_fast_math", "--split-compile=0"}
    assert set(host) - set(plain["C++ host.cpp"]) == {"-O3"}
    assert device.index("-O3") < device.index("--use_fast_math")
    # After the builder's own, so that they win.
    assert host.index("-std=c++17") < host.index("-O3")


ORDINARY = dataclasses.replace(FLAGGED, ordinary=True)
TARGETS = {
    **{name: (FLAGGED, target) for name, target in EVERY.items()},
    # A build at first use, with a torch that is older than the stable ABI.
    "cuda-aten-jit": (FLAGGED, dataclasses.replace(CUDA_ATEN, python=None)),
    "cuda-ordinary": (ORDINARY, CUDA_ATEN),
    "rocm-ordinary": (ORDINARY, dataclasses.replace(ROCM_STABLE, abi="aten", python=PY312)),
}


@pytest.mark.parametrize(("extension", "target"), TARGETS.values(), ids=TARGETS)
def test_every_flavour_gets_them_in_every_command(extension, target):
    own = {"C++": "-O3", "CUDA": "--use_fast_math", "HIP": "-ffast-math", "link": "-laio"}
    languages = set()
    for label, command in commands(target, extension).items():
        language = label.split()[0]
        expected = {own[language]} if language in own else set()  # stubs have none
        # gcc's -O3 is also the builder's own for device code.
        found = {"--use_fast_math", "-ffast-math", "-laio"}.intersection(command)
        found |= {"-O3"}.intersection(command) if language == "C++" else set()
        assert found == expected, label
        languages.add(language)
    device = "HIP" if target.toolkit.backend == "rocm" else "CUDA"
    assert languages == {"C++", device, "link", "stub"}


def test_each_toolkit_gets_its_own_flags():
    old = dataclasses.replace(CUDA_STABLE.toolkit, release=ToolkitRelease("cuda", "12.4"))
    device = commands(dataclasses.replace(CUDA_STABLE, toolkit=old))["CUDA a.cu"]
    assert "--old" in device
    assert "--split-compile=0" not in device
    made = commands(ROCM_STABLE)
    assert {"-ffast-math", "--six"} <= set(made["HIP a.cu"])
    assert "--use_fast_math" not in made["HIP a.cu"]
    assert {"-laio", "-lhipblas"} <= set(made["link rocm6.4-stable.so"])


@pytest.mark.parametrize("target", EVERY.values(), ids=EVERY)
def test_what_is_linked_may_load_a_library(target):
    made = commands(target)
    linked = [command for label, command in made.items() if label.startswith("link ")]
    assert linked
    assert all("-ldl" in command for command in linked)


def test_the_link_gets_libraries_folders_and_flags():
    link = commands(CUDA_STABLE)["link cu130-stable.so"]
    own = ("-L/project/lib", "-L/cuda/lib64", "-laio", "-Wl,-z,now")
    assert [word for word in link if word in own] == list(own)
    assert link.index("obj/host.cpp.o") < link.index("-laio")


def test_the_flags_of_a_probe_are_used_where_it_holds():
    assert "-mavx2" not in commands(CUDA_STABLE)["C++ host.cpp"]
    made = commands(dataclasses.replace(CUDA_STABLE, probes=frozenset({"avx2"})))
    assert "-mavx2" in made["C++ host.cpp"]
    assert "-DAVX2" in made["CUDA a.cu"]


def test_an_extension_without_flags_has_the_commands_it_had():
    bare = dataclasses.replace(EXTENSION, flags=Flags(), toolkit_flags={"rocm": Flags(("-O3",))})
    assert commands(CUDA_STABLE, bare) == commands(CUDA_STABLE, EXTENSION)


@pytest.mark.parametrize("condition", ["cuda 12", "cuda=12", "hip", "cuda>=x", "", "cuda12.8"])
def test_a_malformed_condition_is_named(condition):
    extension = dataclasses.replace(EXTENSION, toolkit_flags={condition: Flags()})
    with pytest.raises(UsageError) as error:
        commands(CUDA_STABLE, extension)
    assert str(error.value) == (
        "Extension.toolkit_flags: expected cuda or rocm and a range of releases, found "
        f"""{condition!r}; write e.g. "cuda>=12.8\""""
    )


# What is said, and the flags of each field; some are of several words.
REFUSED = {
    "a file that no check and no cache key sees": {
        "cxx": ["@flags.txt", "-specs=own.specs", "-fplugin=own.so"],
        "cuda": ["--options-file=x"],
        "hip": ["-fpass-plugin=own.so"],
        "link": ["--specs=own.specs"],
    },
    "the ABI flavour decides what is static": {"link": ["-static-libstdc++", "-static-libgcc"]},
    "other GPU code than it claims": {
        "cuda": ["-gencode=arch=compute_90,code=sm_90"],
        "hip": ["--offload-arch=gfx942", "--cuda-gpu-arch=gfx942"],
    },
    "name archs in the matrix": {"cuda": ["-arch"]},
    "the library would name folders of this machine": {"cuda": ["-lineinfo"]},
    "no gate could read its GPU code": {"cuda": ["-G"]},
    "name the features in a Probe with `cpu`": {"cxx": ["-march=native"]},
    "another CPU than the one that builds": {
        "cuda": ["-Xcompiler=-O3,-march=native", "--compiler-options=-O3,-march=native"]
        + [("-Xcompiler", "-O3,-march=native"), "-Xcompiler=-O3 -march=native"],
    },
    "the C++ ABI is torch's": {
        "cxx": [
            *("-D_GLIBCXX_USE_CXX11_ABI=0", "-U_GLIBCXX_USE_CXX11_ABI"),
            *("-Wp,-D_GLIBCXX_USE_CXX11_ABI=0", "-Wp,-O,-U_GLIBCXX_USE_CXX11_ABI"),
            "--define-macro=_GLIBCXX_USE_CXX11_ABI=0",
            *(("-D", "_GLIBCXX_USE_CXX11_ABI=0"), ("-U", "_GLIBCXX_USE_CXX11_ABI")),
        ],
        "cuda": ["--undefine-macro=_GLIBCXX_USE_CXX11_ABI"]
        + [("--define-macro", "_GLIBCXX_USE_CXX11_ABI=0")],
    },
    "a sanitizer's runtime": {"cxx": ["-fsanitize=address"]},
    "CUDA's runtime is linked already": {"libraries": ["cudart"], "link": [("-l", "cudart")]},
    "the library's own name, exports and run path": {
        "cuda": [("-Xlinker", "-O1,-rpath")],
        "link": [
            *("-Wl,-rpath,/opt/lib", "-Wl,--version-script=x.map", "-Wl,-soname,x.so"),
            *("-Wl,-version-script=x.map", "-Wl,-version-script,x.map", "-Wl,-T,x.ld"),
            *("-Tx.ld", "-Wl,--script=x.ld", "-Wl,--soname=x.so", "-Wl,-hx.so"),
            ("-Xlinker", "-T", "-Xlinker", "x.ld"),
        ],
    },
    "which the recipe decides": {
        "cxx": ["-o", "-E"],
        "cuda": ["-ptx", "-cubin", "-dlink", "--ptx", "--fatbin", "--lib", "--device-link"]
        + ["-odir=x"],
    },
    "no cache key sees": {
        "cxx": [
            *("-I/usr/own/include", "-isystem/usr/own/include", "-I../own"),
            *("-include/usr/own/all.h", "-B/usr/own/gcc", ("-I", "/usr/own/include")),
            *(("-O3", "-isystem", "/usr/own/include"), ("-include", "/usr/own/all.h")),
        ],
        "cuda": ["-isystem=/usr/own/include", "--include-path=/usr/own/include"]
        + [("--pre-include", "/usr/own/all.h")],
        "link": ["-L/usr/own/lib", "-Wl,-L/usr/own/lib", ("-L", "/usr/own/lib")],
    },
    "the builder chooses the compiler": {"cuda": ["-ccbin=/usr/bin/g++"]},
}
CASES = {
    f"{field}: {' '.join(words)}": (field, words, why)
    for why, fields in REFUSED.items()
    for field, flags in fields.items()
    for words in (flag if isinstance(flag, tuple) else (flag,) for flag in flags)
}


@pytest.mark.parametrize("field", ["flags", "probes"])
def test_a_flag_that_waits_for_its_next_word_is_refused(field):
    """The next word may be another field's, where no check sees both."""
    flags = Flags(cxx=("-O3", "-D"))
    made = {"flags": flags} if field == "flags" else {"probes": (Probe("p", flags),)}
    with pytest.raises(UsageError, match="cxx: expected a flag with its argument, found '-D'; "):
        commands(CUDA_STABLE, dataclasses.replace(EXTENSION, **made))


@pytest.mark.parametrize(("field", "words", "why"), CASES.values(), ids=CASES)
def test_a_flag_that_breaks_the_gates_is_refused_in_one_line(field, words, why):
    """docs/runtime.md says what each of them did before it was refused."""
    for extension in (
        dataclasses.replace(EXTENSION, flags=Flags(**{field: words})),
        # Also where neither the toolkit nor the compiler would ask for it.
        dataclasses.replace(EXTENSION, toolkit_flags={"rocm": Flags(**{field: words})}),
        dataclasses.replace(EXTENSION, probes=(Probe("p", Flags(**{field: words})),)),
    ):
        with pytest.raises(UsageError) as error:
            commands(CUDA_STABLE, extension)
        text = str(error.value)
        assert f".{field}: expected a flag that keeps the gates, found " in text
        assert len(words) > 1 or repr(words[0].removeprefix("-l"))[1:-1] in text
        assert why in text
        assert "\n" not in text


@pytest.mark.parametrize(
    "words",
    ["-O3", "-Wall", "--use_fast_math", "-g", "-Xptxas=-v", "-Wl,-z,now", "-mavx2", "-x86"]
    + ["-ffast-math", "-fopenmp", "-std=c++20", "--maxrregcount=64", "-DNAME=a b;$(c)", "-Ofast"]
    + ["-Iinclude", "-Wp,-DNAME", "-Xcompiler=-O3 -g", "-dlto", "-DPATH=/x", "-libverbs"]
    + ["-Bsymbolic", "-Wl,-Bsymbolic", "-Wl,--as-needed", "-diag-suppress=177"]
    + [("-include", "own.h"), ("-D", "NAME=/x"), ("-Xcompiler", "-O3,-g"), ("-l", "aio")]
    + [("-I", "a")],
    ids=str,
)
def test_ordinary_flags_are_taken(words):
    words = words if isinstance(words, tuple) else (words,)
    check_flags(Flags(cxx=words, cuda=words, hip=words, link=words), "Extension.flags")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (Flags(cxx="-O3"), "Extension.flags.cxx: expected a tuple of texts, found '-O3'; write"),  # type: ignore[arg-type]
        (Flags(cuda=(3,)), "Extension.flags.cuda: expected a tuple of texts, found (3,); write"),  # type: ignore[arg-type]
        (Flags(cxx=("",)), "Extension.flags.cxx: expected a flag in one line, found ''; take"),
        (Flags(link=("-a\nb",)), r"link: expected a flag in one line, found '-a\nb'; take it out"),
        (Flags(libraries=("-laio",)), "expected the name of a library, found '-laio'; write"),
        (Flags(libraries=("/lib/x.a",)), "expected the name of a library, found '/lib/x.a'"),
        (Flags(library_dirs=("/lib",)), "expected a folder below the extension's sources"),
        (Flags(library_dirs=("a/../..",)), "below the extension's sources, found 'a/../..'; put"),
    ],
)
def test_a_mistake_in_the_flags_is_one_line(flags, says):
    with pytest.raises(UsageError) as error:
        check_flags(flags, "Extension.flags")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@given(st.lists(st.text(max_size=20), max_size=4).map(tuple))
def test_any_words_are_taken_as_they_are_or_refused_in_one_line(words):
    try:
        made = commands(CUDA_STABLE, dataclasses.replace(EXTENSION, flags=Flags(cxx=words)))
    except UsageError as error:
        says = str(error)
    else:
        says = ""
        host = list(made["C++ host.cpp"])
        assert any(host[at : at + len(words)] == list(words) for at in range(len(host)))
    assert len(says.splitlines()) <= 1


def project(tmp_path: Path) -> Target:
    for name in ("a.cu", "b c.cu", "a.cpp", "host.cpp", "a_stable.cpp", "b_stable.cpp"):
        (tmp_path / name).touch()
    return dataclasses.replace(CUDA_STABLE, source=tmp_path)


def test_a_library_of_the_extensions_own_is_an_input(tmp_path):
    target = project(tmp_path)
    with pytest.raises(UsageError, match=r"lib: expected a folder of libraries, found none; corr"):
        sources_of(FLAGGED, target)
    (tmp_path / "lib").mkdir()
    assert sources_of(FLAGGED, target).libraries == []
    (tmp_path / "lib" / "libaio.a").touch()
    found = sources_of(FLAGGED, target)
    assert found.libraries == ["lib/libaio.a"]
    link = Recipe(FLAGGED, found, target).whole()[-1]
    assert str(tmp_path / "lib" / "libaio.a") in link.inputs


def test_a_variable_leaves_an_operator_out(tmp_path):
    target = project(tmp_path)
    assert "b c.cu" in sources_of(EXTENSION, target).device
    off = variables.operators_off(EXTENSION, {"PKG_BUILD_OP_B": "0"})
    without = dataclasses.replace(target, operators_off=off)
    found = sources_of(EXTENSION, without)
    assert list(found.device) == ["a.cu"]
    assert found.binding == ["a_stable.cpp"]
    with pytest.raises(UsageError, match=r"b: expected an operator .* off; set PKG_BUILD_OP_B=1$"):
        sources_of(EXTENSION, without, "b")


def test_a_library_that_names_every_operator_is_not_built_without_one(tmp_path):
    target = dataclasses.replace(CUDA_ATEN, operators_off=frozenset({"a"}), source=tmp_path)
    with pytest.raises(UsageError) as error:
        sources_of(EXTENSION, target)
    assert str(error.value) == (
        "cu130-torch2.11-cp312: expected every operator, because its extension module names them, "
        "found a switched off; build the stable flavour"
    )


@pytest.mark.parametrize(
    ("environ", "off"),
    [
        ({}, set()),
        ({"PKG_BUILD_OP_A": "0"}, {"a"}),
        ({"PKG_BUILD_OP_A": "1"}, set()),
        ({"PKG_BUILD_OPS": "0"}, {"a", "b"}),
        ({"PKG_BUILD_OPS": "0", "PKG_BUILD_OP_B": "1"}, {"a"}),
        ({"OTHER_BUILD_OP_A": "0"}, set()),
    ],
)
def test_the_switches(environ, off):
    assert variables.operators_off(EXTENSION, environ) == off


def test_the_name_of_a_switch_is_made_of_the_names():
    extension = Extension("my-pkg.x", "csrc", (Operator("rms.norm", ()),))
    switched = {"MY_PKG_X_BUILD_OP_RMS_NORM": "0"}
    assert variables.operators_off(extension, switched) == {"rms.norm"}


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"PKG_BUILD_OP_A": "off"}, "PKG_BUILD_OP_A: expected 1 or 0, found 'off'; correct it"),
        ({"PKG_BUILD_OPS": "2"}, "PKG_BUILD_OPS: expected 1 or 0, found '2'; correct it"),
        (
            {"PKG_BUILD_OP_C": "0"},
            "PKG_BUILD_OP_C: expected one of PKG_BUILD_OP_A, PKG_BUILD_OP_B; correct the name",
        ),
    ],
)
def test_a_wrong_switch_is_named(environ, says):
    with pytest.raises(UsageError) as error:
        variables.operators_off(EXTENSION, environ)
    assert str(error.value) == says
