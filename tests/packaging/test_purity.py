"""The core names no vendor and no target, and importing it stays cheap."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "tilec"

# Words of thread form (docs/internals/thread-form.md), which many machines have, are no names of
# one of them: warp, mma, cp_async.
FORBIDDEN = re.compile(
    r"cuda|nvidia|nvcc|nvrtc|\bptx|cutlass|rocm|\bhip\b|\bamd\b|ascend(?!ing)|huawei|\bcann\b|musa\b"
    r"|\bmaca\b|metal\b|hopper|sm_[0-9]|\bwgmma\b|\btma\b|tilec_c\b|tilec-c\b"
    r"|target\.kind\s*[=!]=|kind\s*==\s*[\"']c[\"']|target\s*=\s*[\"']c[\"']",
    re.IGNORECASE,
)

ALLOWED = {
    # Names of the public language surface: kernels written for it must run after only their
    # import line changes, so these words are accepted as the hints or aliases they are.
    "transform/config.py": re.compile(
        r"TL_[A-Z_0-9]+|CUDA_KERNELS_OUTPUT_DIR|\"tl\.[a-z_0-9]+\"|\"cuda\.kernels_output_dir\""
    ),
    "language/__init__.py": re.compile(r"\bptx_[a-z_]+"),
    "language/lane_aliases.py": re.compile(r"\bptx_[a-z_]+"),
    # Values of the keyword ``prefer_instruction`` of T.copy, part of the same surface.
    "ops/copy.py": re.compile(r"'?\"?tma\"?'?"),
    # A protocol of the array world: how an object says that it is a device array.
    "jit/impl.py": re.compile(r"__cuda_array_interface__"),
    # The registry compares against "auto", which is no target.
    "backend/registry.py": re.compile(r"target\.kind == AUTO"),
}


def sources() -> list[Path]:
    return sorted(CORE.rglob("*.py"))


def test_core_names_no_vendor_and_no_target() -> None:
    found = []
    for path in sources():
        name = path.relative_to(CORE).as_posix()
        allowed = ALLOWED.get(name)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            text = allowed.sub("", line) if allowed else line
            match = FORBIDDEN.search(text)
            if match:
                found.append(f"tilec/{name}:{number}: {match[0]!r} in {line.strip()!r}")
    assert not found, "\n".join(found)


def test_exceptions_are_still_needed() -> None:
    for name, pattern in ALLOWED.items():
        text = (CORE / name).read_text(encoding="utf-8")
        assert pattern.search(text), f"tilec/{name} needs no exception any more"


def test_one_backend_fork_in_the_engine() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in (CORE / "engine").glob("*.py"))
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    assert len(re.findall(r"\bcontext\.lower\(", code)) == 1
    assert "mod = context.lower(mod" in code


def test_only_options_reads_the_environment() -> None:
    for path in sources():
        if path.name != "options.py":
            assert "os.environ" not in path.read_text(encoding="utf-8"), path


def test_modules_stay_readable() -> None:
    """Modules of about 500 lines at most; longer ones are split by meaning."""
    long = {
        str(path.relative_to(ROOT)): count
        for folder in ("tilec", "tilec_c", "tilec_cuda")
        for path in (ROOT / folder).rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 620
    }
    assert not long


HEAVY = (
    "torch", "cffi", "_cffi_backend", "pluggy", "importlib.metadata", "platformdirs", "tilec_c",
    "tilec_cuda", "cuda", "subprocess", "hypothesis", "ml_dtypes", "setuptools",
)  # fmt: skip


@pytest.mark.parametrize("statement", ["import tilec", "import tilec, tilec.language as T"])
def test_import_loads_no_driver_framework_or_plugin(statement: str) -> None:
    program = (
        "import sys, numpy; before = set(sys.modules)\n"
        f"{statement}\n"
        f"print(sorted((set(sys.modules) - before) & set({HEAVY!r})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_import_is_quick() -> None:
    """Best of five, with room for a loaded machine; the benchmark has the real figure."""
    program = (
        "import numpy, time; start = time.perf_counter(); import tilec, tilec.language\n"
        "print(time.perf_counter() - start)"
    )
    best = min(
        float(
            subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                check=True,
                cwd=ROOT,
            ).stdout
        )
        for _ in range(5)
    )
    assert best < 0.2
