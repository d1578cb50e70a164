import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.validate.findings import RULES, Finding, drop_ignored, enforce, ignored_rules

GLIBC = Finding("glibc", "glibc 2.31", "glibc 2.28", "use a newer system")
DRIVER = Finding("driver", "a newer driver", "an old one", "update it")
ADVICE = Finding("two-toolkits", "one", "two", "take one", blocks=False)


def say(names: str) -> dict[str, str]:
    return {"TORCHWHEEL_IGNORE": names}


def test_nothing_is_let_pass_unasked(capsys):
    assert drop_ignored([GLIBC, DRIVER], {}) == (GLIBC, DRIVER)
    assert drop_ignored([GLIBC], say("")) == (GLIBC,)
    assert capsys.readouterr().err == ""


def test_what_is_let_pass_is_said_every_time(capsys):
    line = (
        "torchwheel: warning: TORCHWHEEL_IGNORE lets pass: glibc: expected glibc 2.31; found "
        "glibc 2.28; use a newer system\n"
    )
    for _ in range(2):
        assert drop_ignored([GLIBC, DRIVER], say(" glibc , torch,")) == (DRIVER,)
        assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        ("glib", 'TORCHWHEEL_IGNORE: "glib" is no rule: did you mean "glibc"?'),
        ("torch,arch", 'TORCHWHEEL_IGNORE: "arch" is no rule: did you mean "archs"'),
        ("all", 'TORCHWHEEL_IGNORE: "all" is no rule: expected one of: torch, backend'),
        ("*", 'TORCHWHEEL_IGNORE: "*" is no rule: expected one of: torch, backend'),
    ],
)
def test_an_unknown_rule_is_an_error_with_the_nearest(names, advice):
    with pytest.raises(UsageError) as caught:
        drop_ignored([], say(names))
    assert str(caught.value).startswith(advice)


@given(st.lists(st.sampled_from(RULES)), st.sampled_from([",", " ,", ", "]))
def test_every_rule_can_be_named(rules, comma):
    assert ignored_rules(say(comma.join(rules))) == set(rules)


@given(st.text(max_size=30))
def test_any_text_names_rules_or_is_one_line(text):
    known = all(name.strip() in ("", *RULES) for name in text.split(","))
    if known:
        assert ignored_rules(say(text)) <= set(RULES)
    else:
        with pytest.raises(UsageError) as caught:
            ignored_rules(say(text))
        assert len(str(caught.value).splitlines()) == 1


def test_what_stands_stops_a_build():
    with pytest.raises(TorchwheelError) as caught:
        enforce([GLIBC, DRIVER, ADVICE], {})
    assert str(caught.value) == (
        "glibc: expected glibc 2.31; found glibc 2.28; use a newer system\n"
        "driver: expected a newer driver; found an old one; update it "
        "(TORCHWHEEL_IGNORE=glibc,driver goes on all the same)"
    )


def test_what_blocks_nothing_stops_nothing(capsys):
    enforce([ADVICE], {})
    enforce([GLIBC, DRIVER, ADVICE], say("glibc,driver"))
    assert capsys.readouterr().err.count("lets pass") == 2
