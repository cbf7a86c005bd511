"""Finding, probing and calling the C compiler."""

from __future__ import annotations

import ctypes
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilec.diagnostics import NativeCompileError, ToolchainError
from tilec.host.compiler import Unit, parse_messages
from tilec.options import options
from tilec_c.cpu import AVX2, AVX512, NEON, SSE2, CpuInfo, host_cpu
from tilec_c.toolchain import compile_shared, find_toolchain

EXPORT = '__attribute__((visibility("default"))) '


def script(folder: Path, body: str) -> str:
    """An executable Python program that plays the compiler."""
    path = folder / "fakecc"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{textwrap.dedent(body)}")
    path.chmod(0o755)
    return str(path)


def test_probe_is_done_once_and_describes_itself() -> None:
    tool = find_toolchain()
    assert find_toolchain() is tool
    facts = tool.describe()
    assert set(facts) >= {"compiler", "version", "openmp", "vector unit", "flags"}
    assert tool.identity == find_toolchain().identity
    assert tool.version in tool.identity
    assert not any("fast-math" in flag or "Ofast" in flag for flag in tool.flags())


def test_compiles_loads_and_leaves_only_the_library(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "lib.so"
    result = compile_shared(f"{EXPORT}int answer(void) {{ return 42; }}", target)
    assert result.path == target
    assert [p.name for p in target.parent.iterdir()] == ["lib.so"]
    assert ctypes.CDLL(str(target)).answer() == 42
    assert result.seconds > 0


def test_units_are_linked_together_with_their_own_optimisation(tmp_path: Path) -> None:
    units = [
        Unit("kernel", "int helper(int x) { return x * 2; }"),
        Unit("stub", f"int helper(int); {EXPORT}int f(int x) {{ return helper(x) + 1; }}", 1),
    ]
    result = compile_shared(units, tmp_path / "two.so")
    assert ctypes.CDLL(str(result.path)).f(20) == 41
    assert ["-O3" in c for c in result.commands] == [True, False, False]
    assert "-O1" in result.commands[1]


def test_rejected_source_maps_back_to_the_python_line(tmp_path: Path) -> None:
    user = tmp_path / "kernel.py"
    user.write_text("first\nC[i] = unknown(A[i])\n")
    source = f'int f(int x) {{\n#line 2 "{user}"\nreturn x + undeclared;\n}}\n'
    with pytest.raises(NativeCompileError) as caught:
        compile_shared(source, tmp_path / "bad.so")
    text = str(caught.value)
    assert f"{user}:2" in text
    assert "undeclared" in text
    assert "C[i] = unknown(A[i])" in text
    assert "TC0502" in text
    assert not list(tmp_path.glob("*.so"))
    assert not list(tmp_path.glob(".tilec-cc-*"))


def test_rejected_source_without_a_python_line() -> None:
    with pytest.raises(NativeCompileError, match="unknown type name") as caught:
        compile_shared("nonsense x;")
    assert caught.value.span is None or not caught.value.span.known


def test_flags_that_change_arithmetic_are_refused() -> None:
    for flag in ("-ffast-math", "-Ofast", "-funsafe-math-optimizations"):
        with pytest.raises(ToolchainError, match="is refused"):
            compile_shared("int x;", extra_flags=(flag,))


def test_loading_a_library_keeps_subnormals_alive(tmp_path: Path) -> None:
    result = compile_shared(f"{EXPORT}int f(void) {{ return 1; }}", tmp_path / "x.so")
    ctypes.CDLL(str(result.path))
    tiny: Any = np.float32(1e-40)
    assert tiny * np.float32(1.0) != 0


def test_missing_compiler_says_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no-such-compiler: not found"):
        find_toolchain("no-such-compiler")
    failing = script(tmp_path, "sys.exit('licence expired')")
    with pytest.raises(ToolchainError, match="licence expired"):
        find_toolchain(failing)
    with options(cc=["no-such-compiler-either"]), pytest.raises(ToolchainError, match="either"):
        find_toolchain()


def test_probe_gives_up_what_a_compiler_lacks(tmp_path: Path) -> None:
    real = find_toolchain().argv[0]
    without_openmp = script(
        tmp_path,
        f"""
        if "-fopenmp" in sys.argv:
            sys.exit("error: no OpenMP here")
        os.execv({real!r}, [{real!r}, *sys.argv[1:]])
        """,
    )
    tool = find_toolchain(without_openmp)
    assert not tool.openmp
    assert "-fopenmp" not in tool.flags()
    result = compile_shared(f"{EXPORT}int f(void) {{ return 3; }}", toolchain=tool)
    assert ctypes.CDLL(str(result.path)).f() == 3
    assert tool.identity != find_toolchain().identity


def test_probe_falls_back_to_the_baseline_processor(tmp_path: Path) -> None:
    real = find_toolchain().argv[0]
    fake = script(
        tmp_path,
        f"""
        if "-march=native" in sys.argv:
            sys.exit("error: unknown processor")
        os.execv({real!r}, [{real!r}, *sys.argv[1:]])
        """,
    )
    tool = find_toolchain(fake)
    assert not tool.native
    assert tool.openmp
    assert tool.isa == host_cpu().baseline_isa


def test_timeout_stops_the_compiler_and_its_children(tmp_path: Path) -> None:
    real = find_toolchain().argv[0]
    slow = script(
        tmp_path,
        f"""
        if "slow.c" in sys.argv:
            time.sleep(60)
        os.execv({real!r}, [{real!r}, *sys.argv[1:]])
        """,
    )
    tool = find_toolchain(slow)
    with pytest.raises(NativeCompileError, match=r"did not finish within 0\.2 s"):
        compile_shared(Unit("slow", "int x;"), toolchain=tool, timeout=0.2)


def test_unwritable_place_is_a_tool_chain_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolchainError, match="cannot build a library at"):
        compile_shared("int x;", tmp_path / "file" / "lib.so")


def test_messages_are_parsed_for_gcc_and_clang() -> None:
    text = textwrap.dedent(
        """\
        kernel.c: In function 'f':
        /home/me/k.py:12:5: error: 'y' undeclared (first use in this function)
        /home/me/k.py:13:1: warning: unused
        k.c:3: note: here
        k.c:7:9: fatal error: stop: now
        1 error generated.
        """
    )
    found = [(m.file, m.line, m.column, m.severity) for m in parse_messages(text)]
    assert found == [
        ("/home/me/k.py", 12, 5, "error"),
        ("/home/me/k.py", 13, 1, "warning"),
        ("k.c", 3, 1, "note"),
        ("k.c", 7, 9, "fatal error"),
    ]
    assert parse_messages(text)[-1].text == "stop: now"


def test_vector_units_by_processor_flags() -> None:
    def cpu(machine: str, *flags: str) -> CpuInfo:
        return CpuInfo(machine, "m", frozenset(flags), 1, 0, 0, 0)

    assert cpu("x86_64", "avx2", "fma", "avx").isa == AVX2
    full = cpu("x86_64", "avx2", "fma", "avx512f", "avx512vl", "avx512bw", "avx512dq")
    assert full.isa == AVX512
    assert full.baseline_isa == SSE2
    assert cpu("x86_64").isa == SSE2
    assert cpu("aarch64", "asimd").isa == NEON
    assert full.identity != cpu("x86_64").identity


def test_host_processor_is_described() -> None:
    cpu = host_cpu()
    assert cpu.cores >= 1
    assert cpu.l1d > 0
    assert cpu.model
