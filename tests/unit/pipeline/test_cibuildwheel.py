import dataclasses
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.image.engine import Engine
from torchwheel.image.images import BuiltImage
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.variants import resolve
from torchwheel.pipeline import container_options, own_build
from torchwheel.pipeline.cibuildwheel import ContainerOptions, options_toml, settings
from torchwheel.pipeline.inputs import Run
from torchwheel_runtime.console import Quiet

ROOT = Path(__file__).parents[3]


def options_for(
    name,
    tmp_path,
    monkeypatch,
    environ=None,
    user=0,
    room=1 << 40,
    matrix_name="full.yaml",
    locks=None,
):
    matrix = load(Path(__file__).parents[1] / "matrix" / matrix_name)
    smoke = matrix.smoke.model_copy(update={"locks": locks})
    matrix = matrix.model_copy(update={"smoke": smoke})
    engine = Engine("podman", {})
    run = Run(matrix, ROOT, ROOT, tmp_path / "dist", tmp_path / "cache", "", (), Quiet(), engine, 2)
    run = dataclasses.replace(run, locked=locks is not None)
    (tmp_path / "cache").mkdir(exist_ok=True)
    monkeypatch.setattr(container_options.os, "geteuid", lambda: user)
    monkeypatch.setattr(container_options.os, "getegid", lambda: user)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    disk = type("Disk", (), {"free": room})
    monkeypatch.setattr(container_options.shutil, "disk_usage", lambda _: disk)
    variant = next(one for one in resolve(matrix) if one.id == name)
    image = BuiltImage("localhost/torchwheel/image:0123", "0123", "4567")
    return container_options.options_of(
        run, variant, engine, image, tmp_path / "cache" / "torch", environ or {}
    )


@pytest.mark.parametrize(
    "name",
    [
        "cu130-stable",
        "cu124-torch2.6-cp312",
        "rocm7.2-stable",
        "cu130-stable-linux_aarch64",
    ],
)
def test_what_is_generated(name, tmp_path, monkeypatch, golden):
    text = options_toml(options_for(name, tmp_path, monkeypatch)).replace(str(tmp_path), "TMP")
    text = text.replace(str(ROOT), "ROOT")
    golden(f"{name}.toml", re.sub(r"(fusedops|run=|shared)[-]?[0-9a-f]{12,16}", r"\1…", text))


def test_a_locked_wheel_is_tried_in_the_files_of_a_lock(tmp_path, monkeypatch):
    locks = tmp_path / "locks"
    locks.mkdir()
    pins = ("torch==2.13.0", "pytest==9.0", "numpy==2.0")
    (locks / "a.txt").write_text("".join(f"{pin} --hash=sha256:00\n" for pin in pins))
    made = options_for("cu130-stable", tmp_path, monkeypatch, locks=locks)
    assert (str(locks), "/locks", "ro") in made.volumes
    table = settings(made)
    # Offline after the lock: the wheel's own requirements are not fetched by name.
    assert table["test-environment"] == {"PYTHONPATH": "", "UV_OFFLINE": "1"}
    assert table["before-test"] == (
        "env -u UV_OFFLINE uv pip install --index-strategy unsafe-best-match --require-hashes "
        "--only-binary=:all: --requirement /locks/a.txt && uv pip install --no-deps /bundled/*.whl"
    )
    bare = dataclasses.replace(made, bundled=False)
    assert "/bundled" not in str(settings(bare)["before-test"])


def test_an_ordinary_projects_build_is_its_own(tmp_path, monkeypatch, golden):
    made = options_for(
        "cu130-torch2.13-cp312", tmp_path, monkeypatch, room=0, matrix_name="ordinary.yaml"
    )
    text = options_toml(made).replace(str(tmp_path), "TMP").replace(str(ROOT), "ROOT")
    golden("ordinary.toml", re.sub(r"(conv|run=|shared)[-]?[0-9a-f]{12,16}", r"\1…", text))
    table = settings(made)
    assert "test-sources" not in table  # the imports alone: its tests are for a GPU
    assert "--import=conv" in table["test-command"]


def test_an_ordinary_projects_build_for_rocm(tmp_path, monkeypatch):
    made = options_for(
        "rocm7.2-torch2.13-cp312", tmp_path, monkeypatch, room=0, matrix_name="ordinary_rocm.yaml"
    )
    home = str(own_build.PLACES.toolkit_home)
    assert made.environment["ROCM_HOME"] == home
    assert made.environment["PYTORCH_ROCM_ARCH"] == "gfx90a;gfx1100"
    assert made.environment["PATH"].split(":")[1:3] == ["$PATH", f"{home}/bin"]
    assert not {"CUDA_HOME", "CUDACXX", "TORCH_CUDA_ARCH_LIST"} & {*made.environment}


def test_a_toolkit_has_variables_of_its_own(tmp_path):
    text = (ROOT / "tests" / "unit" / "matrix" / "ordinary.yaml").read_text()
    more = '  toolkit_environment: {cu130: {MAJOR: "13", FORCE_BUILD: "1"}}\n  archs_by'
    build = parse(text.replace("  archs_by", more), "matrix.yaml").own_build
    assert build.environment_for("cu130") == {"MAJOR": "13", "FORCE_BUILD": "1"}
    assert build.environment_for("cu124") == {"FORCE_BUILD": "TRUE"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
def test_the_file_says_what_the_settings_say(tmp_path, monkeypatch):
    import tomllib

    made = options_for("cu124-torch2.6-cp312", tmp_path, monkeypatch)
    assert tomllib.loads(options_toml(made))["tool"]["cibuildwheel"] == settings(made)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_breaks_the_file(text):
    import tomllib

    made = ContainerOptions(
        "podman", "1", text, "3.12", ((text, "/x", "ro"),), (), (), {"A": text}, "p", None, ()
    )
    assert tomllib.loads(options_toml(made))["tool"]["cibuildwheel"] == settings(made)


def test_the_aten_flavour_is_tried_with_the_torch_it_claims(tmp_path, monkeypatch):
    aten = options_for("cu124-torch2.6-cp312", tmp_path, monkeypatch)
    assert aten.requires[0] == "torch==2.6.*"
    assert aten.identifier == "cp312-manylinux_x86_64"
    assert options_for("cu130-stable", tmp_path, monkeypatch).requires[0] == "torch==2.13.0"


def test_a_wheel_for_another_machine_is_not_tried(tmp_path, monkeypatch):
    cross = options_for("cu130-stable-linux_aarch64", tmp_path, monkeypatch)
    assert "test-command" not in settings(cross)
    assert not [volume for volume in cross.volumes if volume[1] == "/bundled"]


def test_the_chosen_tests_are_run_or_all(tmp_path, monkeypatch):
    made = options_for("cu130-stable", tmp_path, monkeypatch)
    some = dataclasses.replace(made, chosen_tests=("test_a.py", "test_b.py"))
    commands = [str(settings(one)["test-command"]).split(" && ")[0] for one in (made, some)]
    assert commands[0].endswith(" --tests=tests/smoke --junit=/variant/junit.xml")
    assert commands[1].endswith(".xml --without-gpu=test_a.py --without-gpu=test_b.py")


def test_bundled_are_installed_from_their_files_before_the_wheel(tmp_path, monkeypatch):
    made = options_for("cu130-stable", tmp_path, monkeypatch)
    assert (str(tmp_path / "dist" / "bundled"), "/bundled", "ro") in made.volumes
    assert str(settings(made)["before-test"]).endswith(" /bundled/*.whl")
    bare = settings(dataclasses.replace(made, bundled=False))
    assert "/bundled" not in str(bare["before-test"])


def test_the_tests_see_the_torchwheel_that_was_installed_not_ours(tmp_path, monkeypatch):
    made = settings(options_for("cu130-stable", tmp_path, monkeypatch))
    assert made["test-environment"] == {"PYTHONPATH": ""}
    command = str(made["test-command"]).split(" && ")
    ours = [one for one in command if "torchwheel.pipeline.inside" in one]
    assert len(ours) == 2
    assert all(one.startswith("PYTHONPATH=/opt/torchwheel python ") for one in ours)


def test_torch_free_commands_are_the_same_for_every_variant_of_a_toolkit(tmp_path, monkeypatch):
    one, other = (
        options_for(name, tmp_path, monkeypatch)
        for name in ("cu124-torch2.6-cp312", "cu124-torch2.8-cp310")
    )
    shared = [[v for v in made.volumes if v[1] == "/shared"] for made in (one, other)]
    assert shared[0] == shared[1]
    differing = {
        name for name in one.environment if one.environment[name] != other.environment[name]
    }
    assert differing == {"TORCHWHEEL_NAME", "TORCHWHEEL_TORCH_RELEASE"}


def test_a_small_disk_keeps_no_torch_between_variants(tmp_path, monkeypatch):
    made = options_for("cu130-stable", tmp_path, monkeypatch, room=1 << 30)
    assert made.environment["UV_NO_CACHE"] == "1"
    assert not [volume for volume in made.volumes if volume[1] == "/cache/uv"]


def test_a_user_who_is_not_root_owns_what_is_written(tmp_path, monkeypatch):
    made = options_for("cu130-stable", tmp_path, monkeypatch, user=1234)
    create = settings(made)["container-engine"]["create-args"]
    assert "--user=1234:1234" in create
    # Another user's packages could not be written.
    assert "/containers/uv-1234:/cache/uv:rw" in " ".join(create)


def test_what_pip_is_told_reaches_the_container(tmp_path, monkeypatch):
    links, bundle = tmp_path / "links", tmp_path / "ca.crt"
    links.mkdir()
    bundle.write_text("")
    made = options_for(
        "cu130-stable",
        tmp_path,
        monkeypatch,
        {
            "PIP_FIND_LINKS": f"{links} https://example.invalid/links",
            "PIP_EXTRA_INDEX_URL": "https://example.invalid/simple",
            "PIP_CERT": str(bundle),
        },
    )
    assert (str(links), str(links), "ro") in made.volumes
    assert made.environment["UV_FIND_LINKS"] == str(links)
    assert made.environment["UV_INDEX"] == "https://example.invalid/simple"
    assert (str(bundle), "/etc/ssl/certs/ca-certificates.crt", "ro") in made.volumes


def test_a_shared_compiler_cache_is_used_and_its_secrets_are_not_written_down(
    tmp_path, monkeypatch
):
    environ = {"SCCACHE_REDIS_ENDPOINT": "tcp://cache:6379", "SCCACHE_REDIS_PASSWORD": "hush"}
    made = options_for("cu130-stable", tmp_path, monkeypatch, environ)
    assert made.environment["TORCHWHEEL_LAUNCHER"] == "sccache"
    assert "SCCACHE_SERVER_UDS" in made.environment, "the host's server would be asked"
    assert "--env=SCCACHE_REDIS_PASSWORD" in settings(made)["container-engine"]["create-args"]
    assert "hush" not in options_toml(made)
    environ = {"SCCACHE_CACHE_SIZE": "1G", "SCCACHE_BUCKET": ""}
    bare = options_for("cu130-stable", tmp_path, monkeypatch, environ)
    assert "TORCHWHEEL_LAUNCHER" not in bare.environment
    assert bare.forwarded == ()


def test_a_container_gets_the_variables_of_its_compiler_cache_and_no_other(tmp_path, monkeypatch):
    redis = {"SCCACHE_REDIS_ENDPOINT": "tcp://cache:6379", "SCCACHE_REDIS_PASSWORD": "hush"}
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_PROFILE": "admin"}
    others = {"SCCACHE_GHA_RUNTIME_TOKEN": "token", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}
    made = options_for("cu130-stable", tmp_path, monkeypatch, {**redis, **keys, **others})
    assert made.forwarded == tuple(sorted(redis))
    bucket = {"SCCACHE_BUCKET": "objects", "SCCACHE_REGION": "eu"}
    made = options_for("cu130-stable", tmp_path, monkeypatch, {**bucket, **keys, **others})
    assert made.forwarded == tuple(sorted({*bucket, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}))
    assert options_for("cu130-stable", tmp_path, monkeypatch, {**keys, **others}).forwarded == ()


def test_a_container_gets_the_switches_of_operators(tmp_path, monkeypatch):
    monkeypatch.setenv("FUSEDOPS_BUILD_OP_NORM", "0")
    for name in ("cu130-stable", "cu124-torch2.6-cp312", "rocm7.2-stable"):
        environment = options_for(name, tmp_path, monkeypatch).environment
        assert environment["FUSEDOPS_BUILD_OP_NORM"] == "0"
