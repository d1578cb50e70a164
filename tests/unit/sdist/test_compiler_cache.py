"""A build's own server of sccache: how it starts and ends, and what is waited for."""

import json
from pathlib import Path

import pytest

from programmaker import program
from torchwheel.compilers import compiler_cache
from torchwheel.compilers.cluster import TOKEN, ClusterUse, cluster_use, parse_scheduler
from torchwheel.compilers.compiler_cache import CacheUse, own_server, wait_for_writes
from torchwheel_runtime.errors import TorchwheelError, UsageError

SERVER = """\
case "$1" in
"") touch "$SCCACHE_SERVER_UDS"; while [ -e "$SCCACHE_SERVER_UDS" ]; do sleep 0.01; done;;
--stop-server) rm "$SCCACHE_SERVER_UDS";;
esac"""


def sccache(path: Path, text: str, version: str = "sccache 0.16.0") -> list[str]:
    """A program in place of sccache: a script, which writes down how it is called."""
    says = f'[ "$1" = --version ] && echo "{version}" && exit'
    return [str(program(path / "sccache", says, f'echo "$1 $SCCACHE_DIR" >>{path}/calls', text))]


def test_a_build_has_a_server_of_its_own_which_ends_with_it(tmp_path):
    launcher = sccache(tmp_path, SERVER)
    with own_server(launcher, {"SCCACHE_DIR": "/objects"}, "--cache x") as one:
        assert one["SCCACHE_DIR"] == "/objects"
        with own_server(launcher, {}, "--cache x") as other:
            assert one["SCCACHE_SERVER_UDS"] != other["SCCACHE_SERVER_UDS"]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == " /objects"
    assert calls[-1] == "--stop-server /objects"
    assert len(calls) == 4


def test_a_cache_that_cannot_be_reached_is_one_line(tmp_path):
    launcher = sccache(tmp_path, 'echo "sccache: error: no route" >&2; exit 2')
    with (
        pytest.raises(TorchwheelError, match=r"^--cache redis://h:1: .*: sccache: error: no route"),
        own_server(launcher, {}, "--cache redis://h:1"),
    ):
        pass


@pytest.mark.parametrize("version", ["sccache 0.8.2", "sccache 0.4.0-pre.8", "ccache 4.9", ""])
def test_an_sccache_that_every_user_reaches_is_not_started(tmp_path, version):
    launcher = sccache(tmp_path, SERVER, version)
    expected = rf"expected sccache 0\.9 or newer, .* can reach, found \"{version}\"; update it$"
    with pytest.raises(TorchwheelError, match=expected), own_server(launcher, {}, "--cache x"):
        pass
    assert not (tmp_path / "calls").exists()


def test_a_server_that_does_not_listen_on_its_socket_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler_cache, "_START_SECONDS", 0.3)
    launcher = sccache(tmp_path, f"echo $$ >{tmp_path}/pid; exec sleep 60")
    with (
        pytest.raises(TorchwheelError, match=r"^--cache x: sccache cannot use it: it said nothing"),
        own_server(launcher, {}, "--cache x"),
    ):
        pass
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    assert "--stop-server" not in (tmp_path / "calls").read_text(), "it would end another's"


MISSES = {"CUDA": 1, "HIP": 1, "CUBIN": 1}


def statistics(
    writes: int, errors: int = 0, misses: dict[str, int] = MISSES, **more: object
) -> str:
    hits = {"C/C++": 1, "PTX": 2}
    counts = {"cache_hits": hits, "cache_misses": misses}
    stats = {name: {"counts": found, "adv_counts": {}} for name, found in counts.items()}
    more |= {"cache_writes": writes, "cache_write_errors": errors, "other": 1}
    return json.dumps({"stats": {**stats, **more}})


def test_all_objects_are_waited_for_and_those_that_were_not_taken_are_counted(
    tmp_path, monkeypatch
):
    (tmp_path / "first").write_text(statistics(1))
    (tmp_path / "then").write_text(statistics(2, 1))
    script = f"cd {tmp_path}; cat first; mv then first 2>/dev/null || true"
    launcher = sccache(tmp_path, script)
    assert wait_for_writes(launcher, {"PATH": "/usr/bin:/bin"}) == CacheUse(1, 2, 1)
    assert len((tmp_path / "calls").read_text().splitlines()) == 2
    # A server that is slower than that is not waited for any longer.
    monkeypatch.setattr(compiler_cache, "_WRITE_SECONDS", 0.0)
    (tmp_path / "first").write_text(statistics(0))
    assert wait_for_writes(launcher, {"PATH": "/usr/bin:/bin"}) == CacheUse(1, 2, 3)


HTTPS = "https://builds.example:10600"


@pytest.mark.parametrize(
    ("url", "token", "message"),
    [
        *(
            (url, "t", rf'^--on "{shown}": expected the scheduler.s https://HOST:PORT, or http://')
            for url, shown in {
                "10.0.0.5:10600": "10.0.0.5:10600",
                "tcp://10.0.0.5:8786": "tcp://10.0.0.5:8786",
                "http://10.0.0.5:10600": "http://10.0.0.5:10600",
                "https://u:secret@h:1": r"https://\*\*\*\*@h:1",
                "file:///x": "file:///x",
            }.items()
        ),
        (HTTPS, "", rf"^--on {HTTPS}: expected the clients' token of the cluster in {TOKEN}$"),
    ],
)
def test_a_scheduler_that_cannot_be_asked_is_one_line(url, token, message):
    with pytest.raises(UsageError, match=message):
        parse_scheduler(url, {TOKEN: token})


def test_sccaches_server_alone_gets_the_token(tmp_path):
    scheduler = parse_scheduler(HTTPS, {TOKEN: 'a "token"'})
    assert "token" not in repr(scheduler)
    launcher = sccache(tmp_path, f'[ "$1" ] || cat "$SCCACHE_CONF" >{tmp_path}/settings\n{SERVER}')
    with own_server(launcher, {}, "--on", scheduler) as variables:
        assert "SCCACHE_CONF" not in variables
    settings = (tmp_path / "settings").read_text()
    assert f'scheduler_url = "{HTTPS}"\n' in settings
    assert 'token = "a \\"token\\""\n' in settings


def test_a_cluster_that_compiled_nothing_fails_the_build(tmp_path):
    scheduler = parse_scheduler("http://localhost:1", {TOKEN: "t"})
    printed = tmp_path / "printed"
    launcher = sccache(tmp_path, f"cat {printed}")
    # Of objects that the cache had nothing is compiled.
    printed.write_text(statistics(0, misses={}))
    assert cluster_use(scheduler, launcher, {}) == ClusterUse({}, 0)
    printed.write_text(statistics(3, dist_compiles={"a:1": 2, "b:1": 4}, dist_errors=1))
    use = cluster_use(scheduler, launcher, {})
    assert str(use) == "6 calls of compilers on 2 servers, 1 failed there"
    printed.write_text(statistics(3, dist_errors=3))
    with pytest.raises(TorchwheelError, match=r"^--on .*found that none was, and 3 calls failed"):
        cluster_use(scheduler, launcher, {})
