"""Gate `platform-tag`: the tag is what the symbols say, neither better nor worse, nor too new."""

from torchwheel.check.facts import Facts, GateError
from torchwheel.check.limits import Limits
from torchwheel.machine.versions import numbers
from torchwheel.validate.glibc_rule import floor

ANY = "any"


def platform_tag(facts: Facts, limits: Limits) -> str:
    """The file name's platform tags are those that auditwheel's policies find, none too new."""
    claims, wheel, audit = facts.claims, facts.wheel.read(), facts.audit.read()
    found = {tag.platform for tag in wheel.tags}
    named = ".".join(sorted(found))
    if claims.abi == "pure" or audit.tag is None:
        if audit.tag is not None or claims.abi != "pure" or found != {ANY}:
            code = f"machine code for {audit.tag}" if audit.tag else "no machine code"
            raise GateError(f"tag {named} of a {claims.abi} wheel that holds {code}")
        return "any: no machine code"
    because = "; ".join(audit.causes) or "nothing stricter is known"
    if audit.tag.startswith("linux_"):
        raise GateError(f"no manylinux policy admits it: {because}")
    if not found <= {audit.tag, *audit.aliases}:
        raise GateError(f"the symbols say {audit.tag}, the file name {named}: {because}")
    needs, newest = floor([audit.tag]), limits.newest_glibc
    if newest and needs and numbers(needs) > numbers(newest):
        raise GateError(f"{audit.tag} is for newer systems than glibc {newest}: {because}")
    return f"{audit.tag}: {because}"
