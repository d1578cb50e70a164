"""What the operators must compute: a file a family."""

from cases import bias_act, vector_add
from cases.case import DTYPES, Case, Private

CASES: tuple[Case, ...] = (*vector_add.CASES, *bias_act.CASES)
PRIVATE: dict[str, Private] = {**bias_act.PRIVATE}

__all__ = ["CASES", "DTYPES", "PRIVATE", "Case"]
