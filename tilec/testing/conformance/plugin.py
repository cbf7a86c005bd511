"""The options of the conformance kit, as a pytest plugin.

Registered as an entry point, since pytest reads options before it looks into the package that
``--pyargs`` names. Imports nothing of the kit: it is loaded by every run of pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

GROUP = "tilec conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of ``pytest --pyargs tilec.testing.conformance``."""
    group = parser.getgroup(GROUP, "tilec conformance (--pyargs tilec.testing.conformance)")
    if group.options:  # by the entry point already
        return
    add = group.addoption
    add("--tilec-target", default="auto", metavar="KIND", help="target kind, or a dict as JSON")
    add("--tilec-execution-backend", metavar="NAME", help="default: the target's preferred one")
    add("--tilec-device", metavar="NAME", help="cpu (NumPy arrays) or a torch device name; "
        "default: what the backend's manifest says")  # fmt: skip
    add("--tilec-ulps", type=float, metavar="X", help="error of elementary functions in units in "
        "the last place; default: the capability feature conformance_ulps, or 4")  # fmt: skip
    add("--tilec-rtol", type=float, metavar="X", help="error of sums relative to the largest "
        "result; default: the capability feature conformance_rtol, or one by dtype")  # fmt: skip
    add("--tilec-sample", type=int, metavar="N", help="run about N kernels, from all families")
    add("--tilec-seed", type=int, default=0, metavar="N", help="of samples and of arguments")
    add("--tilec-report", metavar="FILE", help="write the result as JSON")
    add("--tilec-table", metavar="FILE", help="write the table as Markdown")
