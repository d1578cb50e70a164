"""The C++ compiler that is found, and what is said where there is none."""

import pytest

from torchwheel.machine.discovery import find_host
from torchwheel.toolkit.host import NoCompilerError, host_compiler


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"PATH": "/nothing"}, "no C++ compiler (g++, c++ or clang++) on the PATH"),
        ({"PATH": "/nothing", "CXX": "gxx"}, "CXX=gxx: not found"),
        ({"PATH": "/bin:/usr/bin", "CXX": "true"}, "neither gcc nor clang"),
    ],
)
def test_the_advice_is_in_the_error_and_not_in_the_reason(environ, found):
    with pytest.raises(NoCompilerError, match=r"; (install|name|set)") as error:
        host_compiler(environ)
    assert found in error.value.reason
    # A finding has advice of its own.
    assert find_host(environ).reason == error.value.reason
