"""Every example, at small sizes with tails, and the round trip of its kernel's text."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tilec import ir

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "common")
DTYPES = ("float32", "float16", "bfloat16")


def example(name: str) -> ModuleType:
    """Import an example the way that running it would find its helper module."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> str:
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return str(request.param)


@pytest.mark.parametrize("sizes", [(64, 64, 64), (70, 50, 33), (1, 1, 1)])
@pytest.mark.parametrize("blocks", [(32, 32, 16), (128, 128, 64)])
def test_quickstart(sizes: tuple[int, int, int], blocks: tuple[int, int, int], dtype: str) -> None:
    module, common = example("quickstart"), example("common")
    M, N, K = sizes
    rng = np.random.default_rng(1)
    A, B = common.normal(rng, (M, K), dtype), common.normal(rng, (K, N), dtype)
    C = module.matmul_relu(A, B, *blocks, dtype=dtype)
    assert C.dtype == A.dtype
    expected = module.reference(A, B)
    if not expected.any():  # one element, and ReLU may have removed it
        assert not C.any()
    else:
        assert module.relative_error(C, expected) < common.TOLERANCE[dtype]


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm"])
@pytest.mark.parametrize("shape", [(8, 64), (13, 100), (1, 1), (3, 1025)])
def test_rows(name: str, shape: tuple[int, int], dtype: str) -> None:
    assert example(name).run(*shape, dtype)


def test_softmax_of_large_values() -> None:
    """The maximum is subtracted, so exp never overflows; -inf has weight zero."""
    module = example("softmax")
    X = np.array([[1000.0, 999.0, -np.inf, 1000.0], [-1000.0, -1001.0, -1002.0, -np.inf]])
    X = X.astype(np.float32)
    np.testing.assert_allclose(module.make_kernel(2, 4)(X), module.reference(X), rtol=1e-6)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", [(1, 2, 64, 32), (2, 1, 100, 16), (1, 1, 193, 24), (1, 1, 1, 8)])
def test_flash_attention(shape: tuple[int, int, int, int], causal: bool, dtype: str) -> None:
    assert example("flash_attention").run(shape, dtype, causal)


@pytest.mark.parametrize("trans_B", [False, True], ids=["kn", "nk"])
@pytest.mark.parametrize("sizes", [(64, 64, 64), (33, 70, 50), (1, 1, 1)])
def test_matmul(sizes: tuple[int, int, int], trans_B: bool, dtype: str) -> None:
    assert example("matmul").run(*sizes, dtype, trans_B)


@pytest.mark.parametrize(
    ("sizes", "group"), [((64, 64, 64), 32), ((33, 70, 96), 32), ((5, 3, 128), 64), ((1, 9, 6), 2)]
)
def test_dequant_gemm(sizes: tuple[int, int, int], group: int, dtype: str) -> None:
    assert example("dequant_gemm").run(*sizes, dtype, group=group)


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "dilation", "padding"),
    [
        ((1, 8, 8, 16, 32), 3, 1, 1, 1),
        ((2, 7, 9, 5, 6), 3, 2, 1, 0),
        ((1, 9, 7, 3, 70), 3, 1, 2, 2),
        ((3, 5, 4, 7, 9), 1, 1, 1, 0),
        ((1, 12, 11, 2, 3), 5, 3, 1, 4),
    ],
)
def test_conv2d(
    shape: tuple[int, int, int, int, int],
    kernel: int,
    stride: int,
    dilation: int,
    padding: int,
    dtype: str,
) -> None:
    assert example("conv2d").run(shape, dtype, kernel, stride, dilation, padding)


@pytest.mark.parametrize("shape", [(16, 64, 4), (19, 23, 5), (1, 1, 1), (40, 7, 7)])
def test_topk(shape: tuple[int, int, int], dtype: str) -> None:
    assert example("topk").run(*shape, dtype)


def test_topk_of_equal_entries() -> None:
    """Ties go to the lower column."""
    module = example("topk")
    logits = np.array([[1, 3, 3, 2, 3], [0, 0, 0, 0, 0]], np.float32)
    values, columns = module.make_kernel(2, 5, 4)(logits)
    np.testing.assert_array_equal(columns, [[1, 2, 4, 3], [0, 1, 2, 3]])
    np.testing.assert_array_equal(values, [[3, 3, 3, 2], [0, 0, 0, 0]])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_runs_as_a_script(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        env={**os.environ, "TILEC_VERIFY": "0"},  # as its readers run it
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert 3 <= len(done.stdout.splitlines()) <= 6
    assert not done.stderr


def quickstart_function(dtype: str) -> ir.PrimFunc:
    common = example("common")
    A = np.zeros((70, 33), common.numpy_dtype(dtype))
    B = np.zeros((33, 50), common.numpy_dtype(dtype))
    return example("quickstart").matmul_relu.get_tir(A, B, dtype=dtype)


FUNCTIONS: dict[str, Callable[[str], ir.PrimFunc]] = {
    "quickstart": quickstart_function,
    "matmul": lambda dtype: example("matmul").make_kernel.get_tir(33, 70, 50, dtype=dtype),
    "softmax": lambda dtype: example("softmax").make_kernel.get_tir(13, 100, dtype=dtype),
    "rms_norm": lambda dtype: example("rms_norm").make_kernel.get_tir(13, 100, dtype=dtype),
    "layer_norm": lambda dtype: example("layer_norm").make_kernel.get_tir(13, 100, dtype=dtype),
    "flash_attention": lambda dtype: example("flash_attention").make_kernel.get_tir(
        2, 3, 100, 16, dtype=dtype
    ),
    "flash_attention causal": lambda dtype: example("flash_attention").make_kernel.get_tir(
        2, 3, 100, 16, causal=True, dtype=dtype
    ),
    "dequant_gemm": lambda dtype: example("dequant_gemm").make_kernel.get_tir(
        33, 70, 96, dtype=dtype
    ),
    "conv2d": lambda dtype: example("conv2d").make_kernel.get_tir(
        2, 7, 9, 5, 6, 3, 2, 1, 0, dtype=dtype
    ),
    "topk": lambda dtype: example("topk").make_kernel.get_tir(19, 23, 5, dtype=dtype),
}


def test_every_example_has_a_function_here() -> None:
    assert {key.split()[0] for key in FUNCTIONS} == set(NAMES)


@pytest.mark.parametrize("key", FUNCTIONS)
def test_script_runs_again(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed text is a program, and it is the same program."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for dtype in ("float32", "float16"):
        function = FUNCTIONS[key](dtype)
        module = f"script_{key.replace(' ', '_')}_{dtype}"
        text = "import tilec.language as T\n\n" + function.script()
        (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
        again = getattr(importlib.import_module(module), function.name)
        assert isinstance(again, ir.PrimFunc)
        assert ir.structural_equal(function, again)
        assert ir.structural_hash(function) == ir.structural_hash(again)
        assert again.script() == function.script()
