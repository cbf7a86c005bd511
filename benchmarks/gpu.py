"""Speed of tilec's GPU kernels against what a user would call instead.

    python benchmarks/gpu.py [--rounds 20] [CASE ...]

All contenders of a case run in one process, in turns, on the same random data; the L2 cache is
flushed before every call, and events on the stream measure the device's time. A ratio above 1 means
that tilec is faster. tilec's result is compared with torch's in higher precision. Needs an NVIDIA
GPU, tilec-cuda and PyTorch with CUDA.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import gpu_cases
import record

FLUSH_BYTES = 256 * 2**20
WARM_UP = 3


def problem() -> str | None:
    """Why nothing can be measured here; None if it can."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    import torch  # noqa: PLC0415 - optional

    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device"
    if torch.version.cuda is None:
        return "the GPU is not NVIDIA's"
    if importlib.util.find_spec("tilec_cuda") is None:
        return "tilec-cuda is not installed"
    return None


class Clock:
    """Times calls on the device, with cold caches."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - optional

        self._cuda = torch.cuda
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def once(self, call: Callable[[], object]) -> float:
        """Milliseconds of one call."""
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def median(self, call: Callable[[], object], rounds: int) -> float:
        """Median milliseconds."""
        return statistics.median(self.once(call) for _ in range(rounds))

    def rounds(self, calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
        """Milliseconds of calls that take turns, so that a change of clock rates meets all."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(rounds + WARM_UP):
            for name, call in calls.items():
                ms = self.once(call)
                if turn >= WARM_UP:
                    times[name].append(ms)
        return times


def relative_error(actual: Any, expected: Any) -> float:
    """Norm of the difference over the norm of the expected values; NaN if it is anywhere."""
    expected = expected.double()
    return float((actual.double() - expected).norm() / expected.norm())


def fastest(
    case: gpu_cases.Case, data: Any, clock: Clock
) -> tuple[str, Callable[[], Any], dict[str, str]]:
    """The best of a case's configurations, its call, and why others could not be used."""
    found: list[tuple[float, str, Callable[[], Any]]] = []
    refused: dict[str, str] = {}
    for label, build in case.configurations.items():
        try:
            call = build(data)
            call()
            found.append((clock.median(call, 5), label, call))
        except Exception as error:  # noqa: BLE001 - one configuration of several; reported
            refused[label] = f"{type(error).__name__}: {error}".splitlines()[0]
    if not found:
        raise RuntimeError(f"no configuration works: {refused}")
    _, label, call = min(found, key=lambda item: item[0])
    return label, call, refused


def measure(name: str, rounds: int, clock: Clock) -> dict[str, Any]:
    """One case: check the result, then all contenders in turns."""
    import torch  # noqa: PLC0415 - optional

    case = gpu_cases.CASES[name]
    torch.manual_seed(0)
    data = case.data()
    label, call, refused = fastest(case, data, clock)
    error = relative_error(call(), case.expected(data))
    calls: dict[str, Callable[[], object]] = {"tilec": call}
    absent: dict[str, str] = {}
    for peer, build in case.peers.items():
        try:
            contender = build(data)
            contender()
            calls[peer] = contender
        except Exception as error_:  # noqa: BLE001 - a library that lacks the case; reported
            absent[peer] = f"{type(error_).__name__}: {error_}".splitlines()[0]
    times = clock.rounds(calls, rounds)
    medians = {who: statistics.median(ms) for who, ms in times.items()}
    ratios = {
        who: statistics.median(p / t for p, t in zip(times[who], times["tilec"], strict=True))
        for who in calls
        if who != "tilec"
    }
    return {
        "case": name,
        "configuration": label,
        "error": error,
        "median_ms": medians,
        "ratios": ratios,
        "times_ms": times,
        "refused": refused,
        "absent": absent,
    }


def rows(results: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Rows of the table of device times."""
    for result in results:
        case = gpu_cases.CASES[result["case"]]
        amount, unit = case.work
        ms = result["median_ms"]["tilec"]
        peers = result["ratios"] or {"none": float("nan")}
        for peer, ratio in peers.items():
            peer_ms = result["median_ms"].get(peer, float("nan"))
            yield [
                case.title,
                result["configuration"],
                f"{ms:.3f}",
                f"{amount / ms / 1e9:.0f} {unit}",
                peer,
                f"{peer_ms:.3f} ({amount / peer_ms / 1e9:.0f})",
                f"**{ratio:.3f}**",
                f"{result['error']:.1e}",
            ]


HEADER = ("case", "configuration", "tilec, ms", "rate", "against", "peer, ms (rate)", "ratio",
          "error")  # fmt: skip


def host_times(turns: int = 15, count: int = 1000) -> list[list[str]]:
    """Host time of a call with three small tensors, beside torch.add: best and median turn."""
    import torch  # noqa: PLC0415 - optional

    calls = gpu_cases.host_calls()
    result = []
    for name, call in calls.items():
        times = []
        for _ in range(turns):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(count):
                call()
            times.append((time.perf_counter() - start) / count * 1e6)
        torch.cuda.synchronize()
        result.append([name, f"{statistics.median(times):.2f} µs", f"{min(times):.2f} µs"])
    return result


def compile_times(runs: int) -> list[list[str]]:
    """Cold compilation and first run, each in a process of its own."""
    result = []
    for name in gpu_cases.COLD:
        times = [gpu_cases.cold(name) for _ in range(runs)]
        result.append([
            name,
            f"{statistics.median(t['total'] for t in times):.3f} s",
            f"{min(t['total'] for t in times):.3f} s",
            f"{statistics.median(t['import'] for t in times):.3f} s",
        ])  # fmt: skip
    return result


def card() -> str:
    """Name and driver-independent facts of the device."""
    import torch  # noqa: PLC0415 - optional

    facts = torch.cuda.get_device_properties(0)
    return (
        f"{facts.name}, {facts.multi_processor_count} processors, "
        f"{facts.total_memory / 2**30:.0f} GiB, torch {torch.__version__}, "
        f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(gpu_cases.CASES))
    parser.add_argument("--rounds", type=int, default=20, help="timings of each contender")
    parser.add_argument("--compile-runs", type=int, default=3, help="cold compilations; 0 for none")
    parser.add_argument("--no-host", action="store_true", help="leave out the host time of a call")
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    chosen = options.cases or list(gpu_cases.CASES)
    unknown = [case for case in chosen if case not in gpu_cases.CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; known: {', '.join(gpu_cases.CASES)}")
    reason = problem()
    if reason is not None:
        print(f"benchmarks/gpu.py measures on an NVIDIA GPU, and {reason}.", file=sys.stderr)
        return 2
    clock = Clock()
    results, failed = [], {}
    for case in chosen:
        try:
            results.append(measure(case, options.rounds, clock))
        except Exception as error:  # noqa: BLE001 - the other cases are still worth knowing
            failed[case] = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"{case}: FAILED, {failed[case]}", flush=True)
            continue
        for row in rows(results[-1:]):
            print(" | ".join(row), flush=True)
    body = (
        f"{card()}\n\nMedians of {options.rounds} calls by CUDA events, contenders in turns, the "
        "L2 cache flushed before each. The ratio is the peer's time over tilec's, the median over "
        "turns; above 1 tilec is faster. The error is the relative Frobenius error against torch "
        "in higher precision. *copy* is a device-to-device copy of as many bytes as the case "
        "reads and writes, so that its ratio is the share of the bandwidth reached.\n\n"
        + record.table(HEADER, rows(results))
    )
    if not options.no_host:
        body += "\n\n" + record.table(("host time of one call", "median", "best"), host_times())
    if options.compile_runs:
        header = ("cold compile and first run", "median", "best", "of it imports")
        body += "\n\n" + record.table(header, compile_times(options.compile_runs))
    if failed:
        body += "\n\nFailed: " + "; ".join(f"{case}: {why}" for case, why in failed.items())
    print(body)
    if not options.no_write:
        print(f"written: {record.write('gpu', 'GPU kernels', body, results)}")
    wrong = [r["case"] for r in results if not r["error"] < gpu_cases.CASES[r["case"]].tolerance]
    if wrong:
        print(f"WRONG RESULTS: {', '.join(wrong)}")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
