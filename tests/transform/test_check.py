"""What the capability table disclaims is refused at the user's line."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec import ir
from tilec.backend import Capabilities, Memory, PassContext
from tilec.diagnostics import CapabilityError
from tilec.transform.check import CheckCapabilities


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float32")
        T.copy(A, tile)
        T.clear(A)


def check(table: Capabilities | None) -> ir.Module:
    module = ir.Module({"kernel": kernel})
    result = CheckCapabilities()(module, PassContext(capabilities=table))
    assert result is module
    return result


def test_everything_is_fine() -> None:
    check(None)
    check(Capabilities())
    check(Capabilities(memories={"shared.dyn": Memory("shared.dyn", bytes=64 * 64 * 4)}))


@pytest.mark.parametrize(
    ("table", "message", "line"),
    [
        (Capabilities(dtypes=frozenset({"int8"})), "dtype float32 is not supported", None),
        (
            Capabilities(unsupported={"copy": "no"}),
            "does not support copy on float32: no",
            "T.copy",
        ),
        (Capabilities(unsupported={"fill:float32": "no"}), "does not support fill", "T.clear"),
        (Capabilities(max_threads=64), "a block has 128 threads; the target allows 64", "T.Kernel"),
        (
            Capabilities(memories={"local": Memory("local")}),
            "tile is in scope 'shared.dyn', which the target does not have",
            "alloc_shared",
        ),
        (
            Capabilities(memories={"shared.dyn": Memory("shared.dyn", bytes=1024)}),
            "tile takes 16384 bytes; 'shared.dyn' memory has 1024",
            "alloc_shared",
        ),
    ],
)
def test_refusals(table: Capabilities, message: str, line: str | None) -> None:
    with pytest.raises(CapabilityError, match=message) as info:
        check(table)
    assert info.value.span is not None
    assert info.value.span.file == __file__
    if line is not None:
        assert line in str(info.value)
