"""Two releases of one tag may differ in times and numbers of runs, and in nothing else."""

import base64
import hashlib
import json

import pytest

from rehearsal.differences import differences


def sums(**files):
    """A SHA256SUMS of files."""
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    return "".join(lines).encode()


def bundle(statement, signature):
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    return json.dumps({"dsseEnvelope": {"payload": payload, "signatures": [signature]}}).encode()


def test_equal_bytes_are_no_difference():
    found = differences({"a.whl": b"x"}, {"a.whl": b"x"})
    assert (found.allowed, found.faults) == ({}, ())


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ('{"date": "2026-11-25T22:15:01+00:00"}', '{"date": "2026-11-26T02:15:01Z"}', "a time"),
        ("<td>2026-11-25</td>", "<td>2026-11-26</td>", "a time"),
        ('{"seconds": 4.938, "a": 1}', '{"seconds": 5, "a": 1}', "how long it took"),
        ('{"steps": {"build": 1.5}}', '{"steps": {"build": 0.9}}', "how long it took"),
        ('{"peak_bytes": 12}', '{"peak_bytes": 13}', "memory that was used"),
    ],
)
def test_a_time_may_differ(one, other, reason):
    found = differences({"a.json": one.encode()}, {"a.json": other.encode()})
    assert (found.allowed, found.faults) == ({"a.json": (reason,)}, ())


def test_a_hash_may_differ_where_its_file_may():
    one, other = b"2026-11-25T22:15:01Z", b"2026-11-25T22:15:02Z"
    found = differences(
        {"asset a.json": one, "asset SHA256SUMS": sums(a=one, b=b"")},
        {"asset a.json": other, "asset SHA256SUMS": sums(a=other, b=b"")},
    )
    assert found.allowed == {
        "asset a.json": ("a time",),
        "asset SHA256SUMS": ("the hash of a file that differs",),
    }
    assert found.faults == ()


def test_another_signature_of_the_same_statement_may_differ():
    runs = [{"run": f"/actions/runs/7/attempts/{n}", "subject": "a"} for n in (1, 2)]
    name = "asset attestation.sigstore.json"
    found = differences({name: bundle(runs[0], "x")}, {name: bundle(runs[1], "y")})
    why = ("the key, certificate and time of a signature", "the number of a run")
    assert (found.allowed, found.faults) == ({name: why}, ())
    found = differences(
        {name: bundle({"subject": "a"}, "x")}, {name: bundle({"subject": "b"}, "x")}
    )
    assert found.allowed == {}
    assert len(found.faults) == 1


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        ({"a.whl": b"x"}, {"a.whl": b"y"}, "a.whl: 'x' and 'y'"),
        ({"a.whl": b"x"}, {}, "a.whl: is in one of them alone"),
        ({"a.json": b'{"size": 1}'}, {"a.json": b'{"size": 2}'}, "a.json: '{\"size\": 1}' and"),
        ({"SHA256SUMS": sums(b=b"1")}, {"SHA256SUMS": sums(b=b"2")}, "SHA256SUMS: "),
        ({"a.html": b"one"}, {"a.html": b"one\ntwo"}, "a.html: one is longer"),
    ],
)
def test_nothing_else_may_differ(one, other, says):
    found = differences(one, other)
    assert found.allowed == {}
    assert [fault[: len(says)] for fault in found.faults] == [says]
