import warnings

import pytest

from torchwheel.runtime.mode import may_build, may_load, read_mode


@pytest.mark.parametrize("asked", ["auto", "prebuilt", "jit", "fallback", "error"])
def test_a_known_word_is_taken_in_silence(asked):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_mode({"TORCHWHEEL_MODE": asked}) == asked


@pytest.mark.parametrize("environ", [{}, {"TORCHWHEEL_MODE": ""}])
def test_auto_is_the_default(environ):
    assert read_mode(environ) == "auto"


def test_another_word_is_a_warning_and_means_auto():
    with pytest.warns(RuntimeWarning, match="TORCHWHEEL_MODE=fast: one of auto, prebuilt, jit"):
        assert read_mode({"TORCHWHEEL_MODE": "fast"}) == "auto"


def test_a_word_cannot_draw_on_the_terminal():
    with pytest.warns(RuntimeWarning, match=r"TORCHWHEEL_MODE=\\u001b\[2J: one of auto, prebuilt"):
        read_mode({"TORCHWHEEL_MODE": "\x1b[2J"})


def test_what_each_may_do():
    modes = ("auto", "prebuilt", "jit", "fallback", "error")
    assert [may_load(one) for one in modes] == [True, True, False, False, True]
    assert [may_build(one) for one in modes] == [True, False, True, False, True]
