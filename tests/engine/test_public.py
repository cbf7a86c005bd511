"""`tilec.lower` with an installed backend: what users get without running anything."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilec
import tilec.language as T
from tilec.diagnostics import JITArgumentError, OperandError

N = T.dynamic("n")


@T.prim_func
def scale(A: T.Tensor((N, 64), "float32"), B: T.Tensor((N, 64), "float32"), factor: T.float32):
    with T.Kernel(T.ceildiv(N, 16), threads=128) as block:
        tile = T.alloc_fragment((16, 64), "float32")
        T.copy(A[block * 16, 0], tile)
        for i, j in T.Parallel(16, 64):
            tile[i, j] = tile[i, j] * factor
        T.copy(tile, B[block * 16, 0])


@pytest.fixture(scope="module", autouse=True)
def _backend() -> None:
    pytest.importorskip("tilec_c")


def test_artifact_of_a_kernel(tmp_path: Path) -> None:
    artifact = tilec.lower(scale, target="c", out_idx=[1])
    assert isinstance(artifact, tilec.CompiledArtifact)
    assert [(p.name, p.by_value, p.read, p.written, p.is_output) for p in artifact.params] == [
        ("A", False, True, False, False),
        ("B", False, False, True, True),
        ("factor", True, True, False, False),
    ]
    [(name, launch)] = artifact.launches.items()
    assert name in artifact.kernel_source
    assert launch.kernel == name
    assert launch.threads == (128, 1, 1)
    assert len(launch.grid) == 1
    assert artifact.host_source is not None
    assert artifact.symbol is not None
    assert artifact.symbol in artifact.host_source
    assert list(artifact.host_mod.functions) == ["scale"]
    assert list(artifact.device_mod.functions) == [name]
    assert str(artifact.target) == "c"
    written = artifact.write(tmp_path)
    assert {path.name for path in written} >= {"scale.c", "scale_host.c"}


def test_modules_flags_and_refusals() -> None:
    from tilec import ir

    artifact = tilec.lower(ir.Module({"scale": scale}), target="c", enable_host_codegen=False)
    assert artifact.host is None
    with pytest.raises(OperandError, match="expected a PrimFunc, got function"):
        tilec.lower(lambda: None, target="c")  # type: ignore[arg-type]
    with pytest.raises(JITArgumentError, match="out of range"):
        tilec.lower(scale, target="c", out_idx=[7])


PROGRAM = """
import hashlib, sys
sys.path.insert(0, {folder!r})
import tilec
from test_public import scale
artifact = tilec.lower(scale, target="c", out_idx=[1])
text = artifact.kernel_source + artifact.host_source
print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_same_bytes_in_every_process() -> None:
    artifact = tilec.lower(scale, target="c", out_idx=[1])
    text = artifact.kernel_source + (artifact.host_source or "")
    expected = hashlib.sha256(text.encode()).hexdigest()
    program = PROGRAM.format(folder=str(Path(__file__).parent))
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
