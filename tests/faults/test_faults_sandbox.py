"""What the code of others tries in the sandbox of `torchwheel build`, of root and of a user."""

import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from torchwheel.sdist.sandbox import find_sandbox

USER = 1001
SECRET = "a-token-of-the-caller"  # noqa: S105 - of nobody

# Prints the names of the attempts that succeed. None changes anything, in the sandbox or out of it.
ATTEMPTS = """\
import ctypes, glob, json, os, platform, socket, sys
folder, port, secret = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
done = []

def attempt(name):
    def decorate(work):
        try:
            if work() is not False:
                done.append(name)
        except OSError:
            pass
    return decorate

def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno())

def connect_again():
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pair[0].connect(folder + "/datagrams")

@attempt("a setting of the system")
def _():
    for root, folders, files in os.walk("/proc"):
        if root == "/proc":
            folders[:] = [name for name in folders if not name.isdigit() and "self" not in name]
        for name in files:
            # Anybody may ask to be woken when memory is short.
            if "/pressure" not in root:
                try:
                    os.close(os.open(os.path.join(root, name), os.O_WRONLY | os.O_NONBLOCK))
                    return True
                except OSError:
                    pass
    return False

@attempt("a variable of the caller")
def _():
    found = False
    for file in ("/proc/self/environ", *glob.glob("/proc/[0-9]*/environ")):
        try:
            found |= secret in open(file).read()
        except OSError:
            pass
    return found

attempt("the list of keys")(lambda: bool(open("/proc/keys").read()))
attempt("the session's keys")(lambda: call(219 if arm else 250, 0, -3, 0))
attempt("a key of the session")(lambda: call(218 if arm else 249, b"user", secret.encode(), 0, 0))
attempt("io_uring")(lambda: call(425, 1, ctypes.create_string_buffer(256)))
attempt("the network")(lambda: socket.create_connection(("127.0.0.1", int(port)), 5))
attempt("a socket in a folder")(
    lambda: socket.socket(socket.AF_UNIX).connect(folder + "/connections"))
attempt("datagrams to a folder")(connect_again)
attempt("a file that is shown")(lambda: open(folder + "/file", "a"))
attempt("a file of root")(lambda: open("/etc/shadow"))
attempt("a machine's host")(lambda: socket.socket(socket.AF_VSOCK))
attempt("root's number")(lambda: os.getuid() == 0)
print(json.dumps(sorted(done)))
"""
AS_ROOT = {"a setting of the system", "a file of root", "root's number"}
SOMEWHERE = {"io_uring", "a machine's host", "the list of keys", "a key of the session"}
"""What some kernels do not have."""
OUTSIDE = {
    *("a variable of the caller", "the session's keys", "the network", "a file that is shown"),
    *("a socket in a folder", "datagrams to a folder"),
}


def can_be_reached(path: Path) -> bool:
    """Whether every user can run a program."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


@pytest.fixture
def places():
    """A folder that everybody can enter, with sockets that everybody may connect to."""
    # Not below pytest's folder, which belongs to this user alone.
    folder = Path(os.path.realpath(subprocess.check_output(["mktemp", "-d"], text=True).strip()))
    folder.chmod(0o777)
    (folder / "file").touch()
    (folder / "attempts.py").write_text(ATTEMPTS)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as connections,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        connections.bind(str(folder / "connections"))
        connections.listen(20)
        datagrams.bind(str(folder / "datagrams"))
        for path in folder.iterdir():
            path.chmod(0o777)
        yield folder, server.getsockname()[1]
    shutil.rmtree(folder)


def tried(folder: Path, port: int, user: int, *, confined: bool) -> set[str]:
    """The attempts that succeed, as `user`, in the sandbox or out of it."""
    pythons = [Path(os.path.realpath(name)) for name in (sys.executable, "/usr/bin/python3")]
    python = next((path for path in pythons if user == 0 or can_be_reached(path)), None)
    if python is None:
        pytest.skip("no Python here that every user can run")
    answers = multiprocessing.get_context("fork").SimpleQueue()

    def child() -> None:
        if user != os.geteuid():
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        os.environ["GH_TOKEN"] = SECRET
        program = python
        if confined:
            found = find_sandbox("auto", folder / f"scratch-{user}", (), print)
            if isinstance(found, str):
                answers.put(found)
                return
            path, read = folder / f"program-{user}", [folder, python.parents[1]]
            program = found.write_program(path, python, read=read)
        command = [program, "-I", folder / "attempts.py", folder, str(port), SECRET]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        answers.put(set(json.loads(done.stdout)))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    answer = answers.get()
    if isinstance(answer, str):
        pytest.skip(f"no sandbox here: {answer}")
    return answer


@pytest.mark.parametrize("user", [0, USER])
def test_code_of_others_reaches_nothing_of_the_caller(places, user):
    if os.geteuid() not in (0, user):
        user = os.geteuid()
    folder, port = places
    outside = tried(folder, port, user, confined=False)
    assert outside >= (OUTSIDE | AS_ROOT if user == 0 else OUTSIDE), "the attempts are no test"
    assert outside <= OUTSIDE | AS_ROOT | SOMEWHERE
    assert tried(folder, port, user, confined=True) == set()


def test_it_runs_in_the_folder_that_is_built_though_others_may_not_enter_it(tmp_path):
    found = find_sandbox("auto", tmp_path / "scratch", (), print)
    if isinstance(found, str):
        pytest.skip(f"no sandbox here: {found}")
    built = tmp_path / "built"
    built.mkdir(mode=0o700)
    program = found.write_program(tmp_path / "program", Path("/bin/sh"), write=[built])
    said = subprocess.check_output([program, "-c", "pwd; touch made"], cwd=built, text=True)
    assert said == f"{built}\n"
    assert (built / "made").exists()
