"""Speed of tilec's CPU kernels against what a user would call instead.

    python benchmarks/cpu.py [--threads 1 2] [--rounds 9] [CASE ...]

Every contender lives in a process of its own, because thread pools keep spinning after a call and
would disturb one another. The processes are asked in turn, so that a change of the clock rate
meets both. A ratio above 1 means that tilec is faster. PyTorch is needed for all but the float32
matrix products: pip install "tilec[bench]".
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cpu_cases
import record

SETTLE = 0.15
"""Seconds of rest between turns: the other process's threads go to sleep."""


class Worker:
    """One contender in its own process."""

    def __init__(self, case: str, contender: str, threads: int) -> None:
        env = dict(os.environ)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            env[name] = str(threads)
        command = [sys.executable, __file__, "--worker", case, contender, str(threads)]
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"worker ended with status {self._process.wait()}")
        return json.loads(line)

    def times(self, calls: int) -> list[float]:
        """Seconds of that many calls in a row."""
        assert self._process.stdin is not None
        print(calls, file=self._process.stdin, flush=True)
        result: list[float] = self._answer()
        return result

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def work(case: str, contender: str, threads: int) -> None:
    """The loop of a worker process."""
    call, error = cpu_cases.CASES[case].contenders[contender](threads)
    for _ in range(3):
        call()
    print(json.dumps({"error": error}), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


def measure(case: str, threads: int, rounds: int) -> dict[str, Any]:
    """Interleaved rounds of all contenders of a case."""
    names = list(cpu_cases.CASES[case].contenders)
    workers = {name: Worker(case, name, threads) for name in names}
    try:
        calls, times = {}, {name: [] for name in names}
        for name, worker in workers.items():
            once = min(worker.times(2))
            calls[name] = max(1, min(200, round(0.25 / once)))
            time.sleep(SETTLE)
        for _ in range(rounds):
            for name, worker in workers.items():
                times[name].append(worker.times(calls[name]))
                time.sleep(SETTLE)
    finally:
        for worker in workers.values():
            worker.close()
    rows = {
        name: {
            "median_ms": statistics.median(t for turn in turns for t in turn) * 1e3,
            "best_ms": min(t for turn in turns for t in turn) * 1e3,
            "turn_medians_ms": [statistics.median(turn) * 1e3 for turn in turns],
        }
        for name, turns in times.items()
    }
    peer, ours = (rows[name] for name in (names[1], names[0]))
    paired = [
        theirs / mine
        for theirs, mine in zip(peer["turn_medians_ms"], ours["turn_medians_ms"], strict=True)
    ]
    return {
        "case": case,
        "threads": threads,
        "peer": names[1],
        "error": workers[names[0]].ready["error"],
        "contenders": rows,
        "ratio_paired_median": statistics.median(paired),
        "ratio_of_medians": peer["median_ms"] / ours["median_ms"],
        "ratio_of_bests": peer["best_ms"] / ours["best_ms"],
    }


def rate(case: str, ms: float) -> str:
    """GFLOP/s or GB/s, whichever limits the case."""
    work_done, unit = cpu_cases.CASES[case].work
    return f"{work_done / ms / 1e6:.1f} {unit}"


def rows(results: list[dict[str, Any]]) -> Iterator[list[str]]:
    for result in results:
        ours, peer = result["contenders"]["tilec"], result["contenders"][result["peer"]]
        yield [
            cpu_cases.CASES[result["case"]].title,
            str(result["threads"]),
            result["peer"],
            f"{ours['median_ms']:.2f} ({ours['best_ms']:.2f})",
            rate(result["case"], ours["best_ms"]),
            f"{peer['median_ms']:.2f} ({peer['best_ms']:.2f})",
            f"**{result['ratio_paired_median']:.2f}**",
            f"{result['ratio_of_bests']:.2f}",
            f"{result['error']:.0e}",
        ]


HEADER = (
    "case",
    "threads",
    "against",
    "tilec, ms (best)",
    "best rate",
    "peer, ms (best)",
    "ratio",
    "ratio of bests",
    "error",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(cpu_cases.CASES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        case, contender, threads = options.worker
        work(case, contender, int(threads))
        return 0
    chosen = options.cases or list(cpu_cases.CASES)
    unknown = [case for case in chosen if case not in cpu_cases.CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; known: {', '.join(cpu_cases.CASES)}")
    results = []
    for case in chosen:
        if not cpu_cases.CASES[case].available():
            print(f"{case}: skipped, PyTorch is not installed", flush=True)
            continue
        for threads in options.threads:
            results.append(measure(case, threads, options.rounds))
            print(" | ".join(next(rows(results[-1:]))), flush=True)
    text = (
        "Median of all calls, best in parentheses. The ratio is the peer's time over tilec's, "
        "the median over interleaved turns; above 1 tilec is faster. Each contender ran in its own "
        "process. The error is the relative Frobenius error of tilec's result against NumPy in "
        "float64.\n\n"
    )
    if not options.no_write:
        path = record.write(
            "cpu", "CPU kernels", text + record.table(HEADER, rows(results)), results
        )
        print(
            f"written: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}"
        )
    wrong = [r["case"] for r in results if not r["error"] < cpu_cases.CASES[r["case"]].tolerance]
    if wrong:
        print(f"WRONG RESULTS: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
