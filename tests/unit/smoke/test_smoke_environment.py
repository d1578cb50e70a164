"""A cached smoke environment is for the wheels that lie in pip's folders, not for their names."""

from torchwheel.smoke.environment import _linked_wheels


def test_another_build_of_a_required_wheel_is_another_environment(tmp_path):
    wheel = tmp_path / "my_kernels-1.0-py3-none-any.whl"
    wheel.write_bytes(b"one")
    (tmp_path / "other-1.0-py3-none-any.whl").write_bytes(b"one")
    environ = {"PIP_FIND_LINKS": f"{tmp_path / 'gone'} {tmp_path}"}
    first = _linked_wheels(["my-kernels>=1.0", "/a/path", "pytest"], environ)
    assert [line.split()[0] for line in first] == [wheel.name]
    wheel.write_bytes(b"two")
    assert _linked_wheels(["my-kernels>=1.0"], environ) != first
    assert _linked_wheels(["my-kernels>=1.0"], {}) == []
