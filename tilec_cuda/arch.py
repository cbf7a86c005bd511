"""What an architecture's name says."""

from __future__ import annotations

import re
from typing import NamedTuple

from tilec.diagnostics import InternalError

_NAME = re.compile(r"(?:sm|compute)_(\d+)([af]?)\Z")


class Arch(NamedTuple):
    """An architecture, such as ``sm_90a``.

    Attributes:
        number: 75 to 121.
        suffix: ``a`` where features of this chip alone may be used, ``f`` for its family, or empty.
    """

    number: int
    suffix: str = ""

    @classmethod
    def parse(cls, name: str) -> Arch:
        """From its name."""
        match = _NAME.match(name)
        if match is None:
            raise InternalError(f"{name!r} is not the name of an architecture")
        return cls(int(match[1]), match[2])

    @property
    def has_wgmma(self) -> bool:
        """Whether it has the asynchronous matrix instructions of sm_90a."""
        return self.number == 90 and self.suffix == "a"

    @property
    def has_bulk(self) -> bool:
        """Whether it has the bulk copy engine and transaction barriers."""
        return self.number >= 90

    @property
    def has_setmaxnreg(self) -> bool:
        """Whether warps can hand registers to each other."""
        return self.number >= 90 and self.suffix != ""

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"
