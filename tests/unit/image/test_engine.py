import os

import pytest

from programmaker import program
from torchwheel.image import engine as engines
from torchwheel.image.engine import Engine, find_engine
from torchwheel_runtime.errors import TorchwheelError, UsageError


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A PATH with nothing on it but what the test puts there (and /bin for the shell)."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def found():
    return find_engine({"PATH": os.environ["PATH"]}).name


@pytest.mark.parametrize(
    ("docker", "taken"), [("echo 28.0", "docker"), ("exit 1", "podman"), ("echo ''", "podman")]
)
def test_podman_is_taken_where_docker_has_no_server(path, docker, taken):
    program(path / "docker", docker)
    program(path / "podman", "")
    assert found() == taken


def test_docker_builds_with_the_builder_that_knows_secrets(path, monkeypatch):
    monkeypatch.delenv("DOCKER_BUILDKIT", raising=False)
    program(path / "docker", 'echo "BuildKit $DOCKER_BUILDKIT"')
    engine = find_engine({"PATH": os.environ["PATH"]})
    assert engine.call(["build"], "image a") == "BuildKit 1\n"


def test_none_is_one_line_with_the_way_out(path):
    with pytest.raises(TorchwheelError, match=r"no container engine: .*podman runc`$"):
        found()


def test_why_docker_refuses_is_said(path):
    program(path / "docker", "echo permission denied: /var/run/docker.sock >&2; exit 1")
    with pytest.raises(TorchwheelError, match=r"podman runc`; docker: permission denied: /var/"):
        found()


def test_the_variable_decides(path):
    program(path / "docker", "exit 1")
    program(path / "podman", "")
    wanted = {"PATH": os.environ["PATH"], engines.VARIABLE: "docker"}
    assert find_engine(wanted).name == "docker"
    with pytest.raises(UsageError, match="TORCHWHEEL_ENGINE=lxc: docker or podman expected"):
        find_engine({**wanted, engines.VARIABLE: "lxc"})


@pytest.mark.parametrize(
    ("capabilities", "restricted"),
    [("000001fffeffffff", True), ("000001ffffffffff", False), ("0000000000000000", True)],
)
def test_a_host_that_may_not_raise_limits_is_seen(tmp_path, monkeypatch, capabilities, restricted):
    status = tmp_path / "status"
    full, none = "000001ffffffffff", "0000000000000000"
    status.write_text(f"Name:\tx\nCapEff:\t{capabilities}\nCapBnd:\t{full}\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert engines._is_restricted(status) is restricted
    # Another user is root in a container of theirs, with what the host leaves to it.
    status.write_text(f"Name:\tx\nCapEff:\t{none}\nCapBnd:\t{capabilities}\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert engines._is_restricted(status) is restricted


@pytest.mark.parametrize(
    ("rootless", "uid", "user"),
    [(False, 1001, "1001:1001"), (False, 0, "1000:1000"), (True, 1001, "0:0")],
)
def test_the_user_of_a_container_is_who_started_it(monkeypatch, rootless, uid, user):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getegid", lambda: uid)
    options = Engine("podman", {}, rootless).user_options()
    assert options == [f"--user={user}", "--env=HOME=/tmp", "--env=USER=builder"]


def test_an_engine_without_root_is_seen(path, monkeypatch):
    program(
        path / "docker", """[ "$1" = info ] && echo '["name=seccomp","name=rootless"]'; echo 1"""
    )
    assert find_engine({"PATH": os.environ["PATH"]}).rootless
    program(path / "docker", """[ "$1" = info ] && echo '["name=seccomp"]'; echo 1""")
    assert not find_engine({"PATH": os.environ["PATH"]}).rootless
    program(path / "podman", "")
    monkeypatch.setattr(engines, "_is_restricted", lambda _: False)
    for uid in (0, 1001):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        found = find_engine({"PATH": os.environ["PATH"], engines.VARIABLE: "podman"})
        assert found.rootless is (uid != 0)


def test_settings_of_the_users_own_are_left_alone(monkeypatch):
    monkeypatch.setattr(engines, "_is_restricted", lambda _: True)
    assert engines._podman_environ({"CONTAINERS_CONF": "/mine"}) == {}
    assert engines._podman_environ({})["CONTAINERS_CONF"].endswith("restricted.conf")


def test_a_failure_is_the_line_that_says_why(path, tmp_path):
    program(path / "podman", "echo step 1; echo 'E: no package x'; echo 'exit status 100'; exit 1")
    with pytest.raises(TorchwheelError, match=r"^image a: podman: E: no package x$"):
        Engine("podman", {}).call(["build"], "image a")
    log = tmp_path / "log"
    with pytest.raises(TorchwheelError, match=r"no package x \(all of it in .*log\)$"):
        Engine("podman", {}).call(["build"], "image a", log)
    assert "step 1" in log.read_text()


@pytest.mark.parametrize("before", ["", "#9 1.234 "])
def test_what_a_recipe_says_itself_comes_before_the_engines_words(path, before):
    line = "packages: expected hipcc 6.4.*, found 7.2 in this Debian; pull it"
    program(
        path / "podman",
        f"""echo 'STEP 2/3: RUN x || echo "rocm: expected HIP, found none"'; echo '{before}{line}'
        echo 'Error: building at STEP "RUN x: expected a, found b": exit status 1'; exit 1""",
    )
    with pytest.raises(TorchwheelError, match=r"^image a: packages: expected hipcc .* pull it$"):
        Engine("podman", {}).call(["build"], "image a")


def test_only_containers_of_the_run_are_removed(path, tmp_path):
    said = tmp_path / "said"
    program(path / "podman", f'echo "$@" >> {said}; [ "$1" = ps ] && echo one two; exit 0')
    Engine("podman", {}).remove_containers("run-1")
    listed, killed, removed = said.read_text().splitlines()
    assert killed == "kill one two"
    assert listed.endswith("label=torchwheel.run=run-1")
    assert removed == "rm --force --volumes one two"


@pytest.mark.parametrize(
    ("listed", "stat", "seconds"),
    [
        ("one two", "usage_usec 1500000\nuser_usec 7", 3.0),
        ("", "usage_usec 1500000", None),
        ("one", "", None),
    ],
    ids=["two", "none runs", "not readable"],
)
def test_the_cpu_seconds_of_a_runs_containers(path, tmp_path, listed, stat, seconds):
    (tmp_path / "stat").write_text(stat)
    script = f'case "$1" in ps) echo {listed};; exec) /bin/cat {tmp_path}/stat;; esac'
    program(path / "docker", script)
    assert Engine("docker", {}).cpu_seconds("run") == seconds
