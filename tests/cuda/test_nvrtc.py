"""NVRTC: finding it, compiling, and what its messages become."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilec.backend import BackendContext, DeviceProgram, LaunchInfo, Target
from tilec.diagnostics import JITArgumentError, NativeCompileError, TilecWarning, ToolchainError
from tilec_cuda.build import compile_options, compile_program, reports, warn_about
from tilec_cuda.capabilities import ARCHITECTURES
from tilec_cuda.nvrtc import Nvrtc, Resources, cache_key, complaints, find_nvrtc, resources
from tilec_cuda.plugin import CUDA

COPY = 'extern "C" __global__ void copy(float* a, const float* b) { a[threadIdx.x] = b[0]; }'


def context_for(arch: str, **config: object) -> BackendContext:
    target = CUDA.target_kinds[0].resolve(Target("cuda", {"arch": arch}))  # type: ignore[union-attr]
    flags = config.pop("compile_flags", ())
    return BackendContext(
        CUDA,
        target,
        CUDA.execution_backends[0],
        CUDA.host_codegens[0],
        config,
        flags,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_assembles(arch: str) -> None:
    if int(re.sub(r"\D", "", arch)) not in find_nvrtc().architectures:
        pytest.skip("not known to this NVRTC")
    program = DeviceProgram("cu", COPY, ("copy",))
    assert compile_program(program, context_for(arch)).binary[:4] == b"\x7fELF"  # type: ignore[index]


def test_errors_point_at_the_python_line_and_show_the_generated_ones() -> None:
    source = 'typedef int number;\n#line 40 "/home/me/kernel.py"\n__device__ number x = zork;\n'
    with pytest.raises(NativeCompileError) as info:
        find_nvrtc().compile(source, "sm_80", ["--minimal"], name="k.cu")
    error = info.value
    assert error.span is not None
    assert (error.span.file, error.span.line) == ("/home/me/kernel.py", 40)
    assert 'identifier "zork" is undefined' in error.message
    assert "k.cu:3> __device__ number x = zork;" in error.notes
    assert "k.cu:1: typedef int number;" in error.notes


def test_errors_without_a_python_line() -> None:
    with pytest.raises(NativeCompileError) as info:
        find_nvrtc().compile(
            "__device__ int x;\n__device__ int y = zork;\n", "sm_80", ["--minimal"], name="k.cu"
        )
    assert info.value.span is None
    assert "k.cu:2> __device__ int y = zork;" in info.value.notes


def test_errors_of_the_assembler() -> None:
    source = 'extern "C" __global__ void f() { asm volatile("foo.bar;"); }'
    with pytest.raises(NativeCompileError, match=r"ptxas .* error") as info:
        find_nvrtc().compile(source, "sm_80", ["--minimal"])
    assert any(note.startswith("ptx:") and "> " in note for note in info.value.notes)
    assert any("foo.bar;" in note for note in info.value.notes if note.startswith("ptx:"))


def test_wrong_options_are_an_error_of_the_compiler() -> None:
    with pytest.raises(NativeCompileError, match=r"the CUDA compiler failed: .*no-such-option"):
        find_nvrtc().compile(COPY, "sm_80", ["--no-such-option"])


def test_threads_compile_side_by_side() -> None:
    compiler = find_nvrtc()
    sources = [COPY.replace("b[0]", f"b[0] + {n}.0f") for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda s: compiler.compile(s, "sm_80", ["--minimal"]), sources))
    alone = [compiler.compile(s, "sm_80", ["--minimal"]) for s in sources]
    assert [c.image for c in together] == [c.image for c in alone]
    assert len({c.image for c in alone}) == 8


class Cache(dict[str, bytes]):
    def put(self, key: str, value: bytes) -> None:
        self[key] = value


def test_a_cache_is_asked_and_damage_is_noticed() -> None:
    compiler, cache = find_nvrtc(), Cache()
    first = compiler.compile(COPY, "sm_80", ["--minimal"], cache=cache)
    [key] = cache
    assert key == cache_key(compiler, COPY, ("--gpu-architecture=sm_80", "--minimal"))
    assert compiler.compile(COPY, "sm_80", ["--minimal"], cache=cache) == first
    cache[key] = cache[key][:-1] + bytes([cache[key][-1] ^ 1])
    assert compiler.compile(COPY, "sm_80", ["--minimal"], cache=cache) == first
    keys = {
        cache_key(compiler, COPY, ("-a",)), cache_key(compiler, COPY + " ", ("-a",)),
        cache_key(compiler, COPY, ("-a", "-b")), cache_key(compiler, "-b" + COPY, ("-a",)),
    }  # fmt: skip
    assert len(keys) == 4


def test_a_missing_library(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="cannot be used"):
        Nvrtc(str(tmp_path / "libnvrtc.so"))


def test_what_a_kernel_needs() -> None:
    body = "float s = 0; float v[200]; for (int i = 0; i < 200; ++i) v[i] = a[i];\n"
    body += "for (int j = 0; j < 200; ++j) for (int i = 0; i < 200; ++i) s += v[(i * j) % 200];"
    source = 'extern "C" __global__ void f(float* a) { __shared__ int x[64]; x[threadIdx.x] = 1;'
    source += f"__syncthreads(); {body} a[0] = s + x[0]; }}\n{COPY}"
    program = compile_program(DeviceProgram("cu", source, ("f", "copy")), context_for("sm_80"))
    found = program.attrs["resources"]
    assert set(found) == {"f", "copy"}
    assert found["f"].shared == 256
    assert found["f"].stack >= 800
    assert found["copy"].stack == 0
    launches = {n: LaunchInfo(n, threads=(256, 2), shared_bytes=80_000) for n in found}
    table = reports(program, launches, Target("cuda", {"arch": "sm_80"}))
    assert table["f"].threads == 512
    assert table["f"].blocks_per_sm == 2
    assert table["f"].occupancy == 0.5
    assert "512 threads per multiprocessor (50%)" in str(table["f"])


LOG = """
ptxas info    : (C7519) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
ptxas         .     16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas warning : setmaxnreg ignored to maintain minimum register requirements.
k.cu(7): warning #20-D: something odd
"""


def test_logs_are_read() -> None:
    assert resources(LOG) == {"k": Resources(168, 12, 8, 16, 1024, 3)}
    assert complaints(LOG) == [
        "something odd (k.cu:7)",
        "ptxas info    : (C7519) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized",
        "ptxas warning : setmaxnreg ignored to maintain minimum register requirements.",
    ]


def test_spills_and_serialised_instructions_are_warned_of() -> None:
    attrs = {"resources": resources(LOG), "warnings": tuple(complaints(LOG))}
    program = DeviceProgram("cu", "", ("k",), attrs=attrs)
    with pytest.warns(TilecWarning) as caught:
        warn_about(program, "mine")
    texts = [str(w.message) for w in caught]
    assert len(texts) == 3
    assert "kernel mine: k spills registers: 12 bytes stored, 8 bytes loaded" in texts[0]


def test_options() -> None:
    compiler = find_nvrtc()
    arch, plain = compile_options(context_for("sm_90a"), compiler)
    assert arch == "sm_90a"
    assert "--fmad=false" in plain
    assert "--use_fast_math" not in plain
    _, fast = compile_options(context_for("sm_90a", **{"tl.enable_fast_math": True}), compiler)
    assert fast[-2:] == ("--use_fast_math", "--fmad=true")
    _, contract = compile_options(context_for("sm_90a", **{"cuda.contract": True}), compiler)
    assert contract[-1] == "--fmad=true"
    more = {"tl.device_compile_flags": "-DX='a b' -lineinfo", "compile_flags": ("-DY",)}
    _, given = compile_options(context_for("sm_90a", **more), compiler)
    assert given[-3:] == ("-DX=a b", "-lineinfo", "-DY")
    level = {"tl.ptxas_register_usage_level": 3}
    _, registers = compile_options(context_for("sm_90a", **level), compiler)
    assert registers[-1] == "--ptxas-options=--register-usage-level=3"
    with pytest.raises(JITArgumentError, match="the target says what code is for"):
        compile_options(context_for("sm_90a", compile_flags=("-arch=sm_80",)), compiler)


@pytest.mark.filterwarnings("ignore:.*is newer than this version")
def test_chips_that_nobody_knows_get_code_that_the_driver_translates() -> None:
    arch, _ = compile_options(context_for("sm_199"), find_nvrtc())
    assert arch == "compute_121"
    program = compile_program(DeviceProgram("cu", COPY, ("copy",)), context_for("sm_199"))
    assert b".target sm_121" in program.binary  # type: ignore[operator]


def test_what_the_assembler_says_is_known_each_time() -> None:
    """A cache of NVRTC's own would keep it from saying how many registers a kernel takes."""
    compiler = find_nvrtc()
    arch, options = compile_options(context_for("sm_90a"), compiler)
    assert ("--no-cache" in options) is (compiler.version >= (12, 9))
    first, again = (compiler.compile(COPY, arch, options) for _ in range(2))
    assert resources(first.log)["copy"].registers > 0
    assert resources(first.log) == resources(again.log)
