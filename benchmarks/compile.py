"""Times around compilation: import, cold compile of the quickstart GEMM, call overhead.

    python benchmarks/compile.py [--runs 9]

Every import and every cold compile happens in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import record

EXAMPLES = Path(__file__).parents[1] / "examples"

IMPORT = """
import json, sys, time
import numpy
start = time.perf_counter()
import tilec
seconds = time.perf_counter() - start
heavy = [name for name in ("torch", "cffi", "tilec_c", "subprocess") if name in sys.modules]
print(json.dumps({"seconds": seconds, "modules": len(sys.modules), "heavy": heavy}))
"""

COMPILE = """
import json, sys, time
sys.path.insert(0, EXAMPLES)
import numpy as np
import quickstart
import tilec

A, B = np.ones((1000, 800), np.float32), np.ones((800, 900), np.float32)
start = time.perf_counter()
function = quickstart.matmul_relu.get_tir(A, B)
traced = time.perf_counter()
artifact = tilec.lower(function)
lowered = time.perf_counter()
kernel = tilec.compile(function)
compiled = time.perf_counter()
kernel(A, B)
called = time.perf_counter()
again = tilec.lower(function)
print(json.dumps({
    "trace": traced - start, "lower": lowered - traced, "compile": compiled - lowered,
    "first_call": called - compiled, "lower_again": time.perf_counter() - called,
    "source_lines": artifact.kernel_source.count(chr(10)),
}))
"""

CALL = """
import json, time
import numpy as np
import tilec
import tilec.language as T

@T.prim_func
def add(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32"),
        C: T.Tensor((16,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(16):
            C[i] = A[i] + B[i]

kernel = tilec.compile(add)
A, B, C = (np.ones(16, np.float32) for _ in range(3))

def best(call, count=2000, turns=15):
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count)
    return min(times)

print(json.dumps({
    "kernel": best(lambda: kernel(A, B, C)), "np.add": best(lambda: np.add(A, B, out=C)),
}))
"""


def fresh(program: str, tmp: Path) -> dict[str, Any]:
    """Run a program in a new process; its answer is one line of JSON."""
    path = tmp / "program.py"  # kernels need a file to be read from
    path.write_text(program.replace("EXAMPLES", repr(str(EXAMPLES))), encoding="utf-8")
    # As an installed package has them, modules are compiled to bytecode once.
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp / "pycache")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, env=env
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def summary(runs: list[dict[str, Any]], key: str) -> tuple[float, float]:
    values = [run[key] for run in runs]
    return statistics.median(values), min(values)


def main() -> int:
    import tempfile  # noqa: PLC0415 - beside its only use

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tmp = Path(folder)
        for program in (IMPORT, COMPILE, CALL):
            fresh(program, tmp)  # writes the bytecode
        imports = [fresh(IMPORT, tmp) for _ in range(options.runs)]
        compiles = [fresh(COMPILE, tmp) for _ in range(options.runs)]
        calls = [fresh(CALL, tmp) for _ in range(3)]
    for run in compiles:
        run["python"] = run["trace"] + run["lower"]
        # compile() lowers once more, now warm; the rest is the C compiler and loading
        run["native"] = run["compile"] - run["lower_again"]
        run["total"] = run["python"] + run["native"]
    rows = []
    for label, runs, key, unit, scale in (
        ("import tilec, after NumPy", imports, "seconds", "ms", 1e3),
        ("quickstart GEMM: trace", compiles, "trace", "ms", 1e3),
        (
            "quickstart GEMM: passes and printing, first in the process",
            compiles,
            "lower",
            "ms",
            1e3,
        ),
        ("quickstart GEMM: Python part together", compiles, "python", "ms", 1e3),
        ("quickstart GEMM: C compiler and loading", compiles, "native", "ms", 1e3),
        ("quickstart GEMM: all", compiles, "total", "ms", 1e3),
        ("call of a kernel with three arrays of 16", calls, "kernel", "µs", 1e6),
        ("np.add of the same arrays, out given", calls, "np.add", "µs", 1e6),
    ):
        median, best = summary(runs, key)
        rows.append([label, f"{median * scale:.2f} {unit}", f"{best * scale:.2f} {unit}"])
    body = record.table(("what", "median", "best"), rows)
    heavy = sorted({name for run in imports for name in run["heavy"]})
    body += f"\n\nHeavy modules loaded by `import tilec`: {', '.join(heavy) or 'none'}."
    print(body)
    if not options.no_write:
        data = {"import": imports, "compile": compiles, "call": calls}
        record.write("compile", "Import, compile and call", body, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
