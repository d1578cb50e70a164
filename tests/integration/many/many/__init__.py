"""What the files of the extensions compute together."""

from many._C import total
from many._D import second

assert (total(), second()) == (10, 7)
