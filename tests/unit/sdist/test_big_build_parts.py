"""The steps of ninja's graphs, their shards and lists, and the plan; no compiler runs."""

import dataclasses
import json
from pathlib import Path

import pytest

from torchwheel.compilers.compile_steps import (
    IncludeReader,
    StepRecord,
    check_objects,
    check_steps,
    include_folders,
    read_graph,
    steps_of_shard,
)
from torchwheel.compilers.compiler_cache import SchedulerAccess, parse_cache
from torchwheel.sdist.build import plan_text
from torchwheel.sdist.request import SdistRequest, check_request
from torchwheel.sdist.shard_lists import (
    BuildIdentity,
    ShardList,
    check_identity,
    objects_of,
    read_lists,
    write_list,
)
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.shards import Shard


def entry(output: str, file: str = "/src/a.cpp", command: str = "g++ -c a.cpp") -> dict[str, str]:
    return {"directory": "/tmp/b", "command": command, "file": file, "output": output}  # noqa: S108


def graph(*entries: dict[str, str], number: int = 0):
    return read_graph(json.dumps(entries), number)


def test_steps_are_named_by_graph_and_object_whatever_the_folder_and_the_order():
    found = graph(
        entry("/tmp/b/csrc/z.o"),  # noqa: S108
        entry("csrc/a.o", command="""nvcc '-DX="a b"' -c a.cu"""),
        number=3,
    )
    assert [step.name for step in found.steps] == ["3/csrc/a.o", "3/csrc/z.o"]
    assert found.steps[0].command == ("nvcc", '-DX="a b"', "-c", "a.cu")


def test_an_object_that_is_linked_from_objects_is_no_step():
    found = graph(entry("a.o"), entry("dlink.o", "/tmp/b/a.o"))  # noqa: S108
    assert [step.name for step in found.steps] == ["0/a.o"]
    assert found.linked == ("dlink.o",)


@pytest.mark.parametrize("entries", [[], [entry("a.o"), entry("lib.so", "a.o")]])
def test_a_graph_that_makes_more_than_objects_is_not_divided(entries):
    assert graph(*entries) is None


def test_shards_take_turns_through_all_graphs():
    one, two = graph(entry("a.o")).steps, graph(entry("b.o"), entry("c.o"), number=1).steps
    shards = [Shard(number, 2) for number in (1, 2)]
    taken = [
        [step.name for step in (*steps_of_shard(one, s, 0), *steps_of_shard(two, s, 1))]
        for s in shards
    ]
    assert taken == [["0/a.o", "1/c.o"], ["1/b.o"]]


def test_headers_are_looked_for_where_the_compiler_does():
    command = ["g++", "-I/one", "-I", "/two", "-isystem", "/three", "-isystem/four", "-c", "a.cpp"]
    assert include_folders(command) == [Path(name) for name in ("/one", "/two", "/three", "/four")]


@pytest.fixture
def headers(tmp_path):
    texts = {
        "src/kernel.cu": '#include "kernel.h"\n#include <vector>\n',
        "src/kernel.h": "#pragma once\n#include <torch/all.h>\n",
        "src/module.cpp": "# include <torch/python.h>\n",
        "include/torch/all.h": "#include <torch/all.h>\n",
        "include/torch/python.h": "#ifdef X\n#include <Python.h>\n#endif\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_python_h_is_found_through_headers(headers):
    reader, folders = IncludeReader(), [headers / "none", headers / "include"]
    assert reader.has_python(headers / "src/module.cpp", folders)
    assert not reader.has_python(headers / "src/kernel.cu", folders)
    # Beside the source a header in quotation marks is found without any folder.
    (headers / "src/kernel.h").write_text("#include <Python.h>\n")
    assert IncludeReader().has_python(headers / "src/kernel.cu", [])


BUILD = BuildIdentity("demo", "cu130-torch2.13-cp311", "2.13.0", "9.0")
STEPS = ("0/a.o", "0/b.o", "0/c.o")


def listed(number: int, **changes: object) -> ShardList:
    own = {name: name[2] * 64 for at, name in enumerate(STEPS) if at % 2 == number - 1}
    return dataclasses.replace(ShardList(BUILD, f"{number}/2", STEPS, own, 0), **changes)


def records(**changes: str) -> list[StepRecord]:
    return [StepRecord(name, "a.cpp", None, changes.get(name[2], name[2]) * 64) for name in STEPS]


def test_lists_come_back_in_the_order_of_shards(tmp_path):
    for number in (2, 1):
        file = write_list(listed(number), tmp_path)
        assert file.name == f"demo-cu130-torch2.13-cp311-{number}of2.json"
    lists = read_lists(tmp_path)
    assert lists == (listed(1), listed(2))
    check_identity(lists, BUILD)
    check_steps([record.name for record in records()], lists[0].steps)
    check_objects({record.name: record.sha256 for record in records()}, objects_of(lists))


def test_a_lost_shard_is_named(tmp_path):
    write_list(listed(1), tmp_path)
    with pytest.raises(TorchwheelError, match=r"of 2 shards, found 1: 2/2 is lost; run .*2/2"):
        read_lists(tmp_path)
    with pytest.raises(TorchwheelError, match="the lists that --shard writes, found none"):
        read_lists(tmp_path / "nothing")


@pytest.mark.parametrize(
    "change",
    [{"build": dataclasses.replace(BUILD, archs="8.0")}, {"steps": STEPS[:2]}, {"shard": "2/3"}],
)
def test_a_shard_of_another_build_is_refused(tmp_path, change):
    write_list(listed(1), tmp_path)
    write_list(listed(2, **change), tmp_path)
    with pytest.raises(TorchwheelError, match=r"of2.json: expected|of3.json: expected"):
        read_lists(tmp_path)


def test_a_list_with_an_object_of_no_step_is_malformed(tmp_path):
    write_list(listed(1, objects={"0/x.o": "0" * 64}), tmp_path)
    with pytest.raises(MalformedError, match=r"0/x.o is none of the steps"):
        read_lists(tmp_path)


def test_shards_of_other_options_are_refused():
    other = dataclasses.replace(BUILD, torch="2.12.0")
    with pytest.raises(TorchwheelError, match=r"shards of torch 2.12.0, found those of 2.13.0"):
        check_identity([listed(1), listed(2)], other)


def test_an_object_that_the_cache_exchanged_is_refused():
    compiled = objects_of([listed(1), listed(2)])
    found = {record.name: record.sha256 for record in records(b="a")}
    with pytest.raises(TorchwheelError, match=r"0/b.o: .* shard 2/2 .*sha256 bbbb.*found aaaa"):
        check_objects(found, compiled)
    with pytest.raises(TorchwheelError, match=r"0/x.o: .* found it in none"):
        check_objects({"0/x.o": "a"}, compiled)


def test_other_steps_than_those_of_the_shards_are_refused():
    for found, differs in ((STEPS[:2], "0/c.o"), (STEPS[::-1], "their order")):
        says = rf"^--x: expected the 3 steps of .*, found {len(found)}; they differ in {differs}; "
        with pytest.raises(TorchwheelError, match=says):
            check_steps(found, STEPS, "--x: ")


def test_a_cache_is_a_folder_or_behind_a_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = parse_cache("objects")
    assert found.folder == tmp_path / "objects"
    assert found.variables["SCCACHE_DIR"] == str(tmp_path / "objects")
    assert parse_cache("redis://h:1").variables["SCCACHE_REDIS_ENDPOINT"] == "redis://h:1"
    bucket = parse_cache("s3://wheels/torch/2.13").variables
    assert (bucket["SCCACHE_BUCKET"], bucket["SCCACHE_S3_KEY_PREFIX"]) == ("wheels", "torch/2.13")
    assert parse_cache("s3://wheels").folder is None
    for wrong in ("", "ftp://x", "s3://"):
        with pytest.raises(UsageError, match="expected a folder, redis://"):
            parse_cache(wrong)


def test_what_needs_the_network_or_a_cache_says_so(tmp_path):
    (tmp_path / "setup.py").touch()
    request = SdistRequest(tmp_path, tmp_path, launcher=("sccache",))
    request = dataclasses.replace(request, on=SchedulerAccess("https://h:1", "t"))
    assert request.network_reason() == "other machines compile it"
    with pytest.raises(UsageError, match=r"^--on: expected sccache on the PATH"):
        check_request(dataclasses.replace(request, launcher=()))
    request = dataclasses.replace(request, on=None, cache=parse_cache("redis://h:1"))
    assert request.network_reason() == "its compiler cache is behind the network"
    assert dataclasses.replace(request, cache=parse_cache("x")).network_reason() is None
    with pytest.raises(UsageError, match=r"^--cache: expected sccache on the PATH"):
        check_request(dataclasses.replace(request, launcher=()))


def test_the_plan_counts_what_pythons_share():
    steps = (
        StepRecord("0/a.o", "a.cu", False),
        StepRecord("0/m.o", "m.cpp", True),
        StepRecord("1/b.o", "b.cu", False),
    )
    text = plan_text("cu130-torch2.13-cp311", steps, ("3.10", "3.11"), 2)
    assert text.splitlines() == [
        "shard  python    step",
        "1/2    any       0/a.o",
        "1/2    any       1/b.o",
        "2/2    Python.h  0/m.o",
        "",
        "cu130-torch2.13-cp311: 3 steps in 2 shards, 2 without Python.h",
        "For the 2 Pythons of this torch: 4 objects, 6 if none were shared",
    ]
