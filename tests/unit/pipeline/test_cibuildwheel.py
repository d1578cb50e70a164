import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.image.engine import Engine
from torchwheel.image.images import BuiltImage
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.variants import resolve
from torchwheel.pipeline import cibuildwheel, container_options, own_build

ROOT = Path(__file__).parents[3]


@pytest.fixture
def container_of(tmp_path, monkeypatch, run_of):
    """`container_of(variant)`: what its container gets, and the table that cibuildwheel is told."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    torch = tmp_path / "cache" / "torch"
    monkeypatch.setattr(container_options, "torch_headers", lambda *_: torch)

    def make(name, environ=None, *, user=0, room=1 << 40, matrix_name="full.yaml", **smoke):
        matrix = load(Path(__file__).parents[1] / "matrix" / matrix_name)
        smoke = matrix.smoke.model_copy(update=smoke)
        matrix = matrix.model_copy(update={"smoke": smoke})
        engine = Engine("podman", {})
        run = run_of(matrix, ROOT, engine=engine, jobs=2, locked=smoke.locks is not None)
        monkeypatch.setattr(os, "geteuid", lambda: user)
        monkeypatch.setattr(os, "getegid", lambda: user)
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=room))
        (variant,) = (one for one in resolve(matrix) if one.id == name)
        image = BuiltImage("localhost/torchwheel/image:0123", "0123", "4567")
        options = container_options.options_of(run, variant, engine, image, environ or {})
        tests = cibuildwheel.tests_of(run, variant)
        table = cibuildwheel.cibuildwheel_settings(run, variant, engine, image, options, tests)
        text = cibuildwheel.settings_toml(table)
        return SimpleNamespace(**vars(options), table=table, text=text)

    return make


@pytest.mark.parametrize(
    ("name", "golden_name", "more"),
    [
        *((name, name, {}) for name in ("cu130-stable", "cu124-torch2.6-cp312")),
        *((name, name, {}) for name in ("rocm7.2-stable", "cu130-stable-linux_aarch64")),
        ("cu130-torch2.13-cp312", "ordinary", {"room": 0, "matrix_name": "ordinary.yaml"}),
    ],
)
def test_what_is_generated(container_of, tmp_path, golden, name, golden_name, more):
    text = container_of(name, **more).text.replace(str(tmp_path), "TMP").replace(str(ROOT), "ROOT")
    text = re.sub(r"(fusedops|conv|run=|shared)[-]?[0-9a-f]{12,16}", r"\1…", text)
    golden(f"{golden_name}.toml", text)


def test_a_locked_wheel_is_tried_in_the_files_of_a_lock(container_of, tmp_path):
    locks = tmp_path / "locks"
    locks.mkdir()
    pins = ("torch==2.13.0", "pytest==9.0", "numpy==2.0")
    (locks / "a.txt").write_text("".join(f"{pin} --hash=sha256:00\n" for pin in pins))
    made = container_of("cu130-stable", locks=locks)
    assert (str(locks), "/locks", "ro") in made.volumes
    table = made.table
    # Offline after the lock: the wheel's own requirements are not fetched by name.
    assert table["test-environment"] == {"PYTHONPATH": "", "UV_OFFLINE": "1"}
    assert table["before-test"] == (
        "env -u UV_OFFLINE uv pip install --index-strategy unsafe-best-match --require-hashes "
        "--only-binary=:all: --requirement /locks/a.txt && uv pip install --no-deps /bundled/*.whl"
    )


def test_an_ordinary_projects_build_for_rocm(container_of):
    made = container_of("rocm7.2-torch2.13-cp312", room=0, matrix_name="ordinary_rocm.yaml")
    home = str(own_build.PLACES.toolkit_home)
    assert made.environment["ROCM_HOME"] == home
    assert made.environment["PYTORCH_ROCM_ARCH"] == "gfx90a;gfx1100"
    assert made.environment["PATH"].split(":")[1:3] == ["$PATH", f"{home}/bin"]
    assert not {"CUDA_HOME", "CUDACXX", "TORCH_CUDA_ARCH_LIST"} & {*made.environment}


def test_a_toolkit_has_variables_of_its_own():
    text = (ROOT / "tests" / "unit" / "matrix" / "ordinary.yaml").read_text()
    more = '  toolkit_environment: {cu130: {MAJOR: "13", FORCE_BUILD: "1"}}\n  archs_by'
    build = parse(text.replace("  archs_by", more), "matrix.yaml").own_build
    assert build.environment_for("cu130") == {"MAJOR": "13", "FORCE_BUILD": "1"}
    assert build.environment_for("cu124") == {"FORCE_BUILD": "TRUE"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_breaks_the_file(text):
    import tomllib

    table = {"text": text, "list": [text], "none": [], "table": {text: {"b": True, "c": [text]}}}
    assert tomllib.loads(cibuildwheel.settings_toml(table))["tool"]["cibuildwheel"] == table


def test_the_chosen_tests_are_run_or_all(container_of):
    chosen = container_of("cu130-stable", without_gpu=("test_a.py", "test_b.py"))
    every, some = (
        one.table["test-command"].split(" && ")[0] for one in (container_of("cu130-stable"), chosen)
    )
    assert every.endswith(" --tests=tests/smoke --junit=/variant/junit.xml")
    assert some.endswith(".xml --without-gpu=test_a.py --without-gpu=test_b.py")


def test_torch_free_commands_are_the_same_for_every_variant_of_a_toolkit(container_of):
    one, other = (container_of(name) for name in ("cu124-torch2.6-cp312", "cu124-torch2.8-cp310"))
    shared = [[v for v in made.volumes if v[1] == "/shared"] for made in (one, other)]
    assert shared[0] == shared[1]
    differing = {
        name for name in one.environment if one.environment[name] != other.environment[name]
    }
    assert differing == {"TORCHWHEEL_NAME", "TORCHWHEEL_TORCH_RELEASE"}


def test_a_small_disk_keeps_no_torch_between_variants(container_of):
    made = container_of("cu130-stable", room=1 << 30)
    assert made.environment["UV_NO_CACHE"] == "1"
    assert not [volume for volume in made.volumes if volume[1] == "/cache/uv"]


def test_a_user_who_is_not_root_owns_what_is_written(container_of):
    made = container_of("cu130-stable", user=1234)
    create = made.table["container-engine"]["create-args"]
    assert "--user=1234:1234" in create
    # Another user's packages could not be written.
    assert "/containers/uv-1234:/cache/uv:rw" in " ".join(create)


def test_what_pip_is_told_reaches_the_container(container_of, tmp_path):
    links, bundle = tmp_path / "links", tmp_path / "ca.crt"
    links.mkdir()
    bundle.write_text("")
    made = container_of(
        "cu130-stable",
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
    container_of,
):
    environ = {"SCCACHE_REDIS_ENDPOINT": "tcp://cache:6379", "SCCACHE_REDIS_PASSWORD": "hush"}
    made = container_of("cu130-stable", environ)
    assert made.environment["TORCHWHEEL_LAUNCHER"] == "sccache"
    assert "SCCACHE_SERVER_UDS" in made.environment, "the host's server would be asked"
    assert "--env=SCCACHE_REDIS_PASSWORD" in made.table["container-engine"]["create-args"]
    assert "hush" not in made.text
    environ = {"SCCACHE_CACHE_SIZE": "1G", "SCCACHE_BUCKET": ""}
    bare = container_of("cu130-stable", environ)
    assert "TORCHWHEEL_LAUNCHER" not in bare.environment
    assert bare.forwarded == ()


def test_a_container_gets_the_variables_of_its_compiler_cache_and_no_other(container_of):
    redis = {"SCCACHE_REDIS_ENDPOINT": "tcp://cache:6379", "SCCACHE_REDIS_PASSWORD": "hush"}
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_PROFILE": "admin"}
    others = {"SCCACHE_GHA_RUNTIME_TOKEN": "token", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}
    made = container_of("cu130-stable", {**redis, **keys, **others})
    assert made.forwarded == tuple(sorted(redis))
    bucket = {"SCCACHE_BUCKET": "objects", "SCCACHE_REGION": "eu"}
    made = container_of("cu130-stable", {**bucket, **keys, **others})
    assert made.forwarded == tuple(sorted({*bucket, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}))
    assert container_of("cu130-stable", {**keys, **others}).forwarded == ()


def test_a_container_gets_the_switches_of_operators(container_of, monkeypatch):
    monkeypatch.setenv("FUSEDOPS_BUILD_OP_NORM", "0")
    for name in ("cu130-stable", "cu124-torch2.6-cp312", "rocm7.2-stable"):
        environment = container_of(name).environment
        assert environment["FUSEDOPS_BUILD_OP_NORM"] == "0"
