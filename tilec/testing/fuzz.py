"""Random programs against the interpreter.

    python -m tilec.testing.fuzz --seconds 60 --seed 0 --target c

Each program is run by the reference interpreter and by a target, and printed and parsed again; any
difference is a failure. Failures are made smaller and written to a file that can be run by itself.
Programs run in a child process, so that even a crash is only a failure.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tilec.testing.compare import Difference, compare
from tilec.testing.generate import random_program
from tilec.testing.generate_wide import wide_program
from tilec.testing.shrink import shrink

_CASE_TIMEOUT = 120.0
_REPLAY = '''"""Found by tilec.testing.fuzz (seed {seed}): {kind}.

{detail}

Run: python {name}
"""

from tilec.testing.compare import compare

PROGRAM = """\\
{program}"""

if __name__ == "__main__":
    print(compare(PROGRAM, {target!r}, {seed}) or "no difference")
'''


def _serve(link: Connection) -> None:
    """The child: compares programs until it is told to stop."""
    while True:
        job = link.recv()
        if job is None:
            return
        text, target, seed = job
        try:
            link.send(compare(text, target, seed))
        except Exception as error:  # noqa: BLE001 - whatever a broken program raises is a finding
            link.send(Difference("error", f"{type(error).__name__}: {error}"))


class Runner:
    """Compares programs in a child process that is replaced when it dies."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._process: Any = None
        self._link: Any = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._link, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def __call__(self, text: str, seed: int) -> Difference | None:
        """The difference that a program shows."""
        if self._process is None or not self._process.is_alive():
            self._start()
        try:
            self._link.send((text, self._target, seed))
            if self._link.poll(_CASE_TIMEOUT):
                result: Difference | None = self._link.recv()
                return result
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            self._process = None
            return Difference("crash", f"the process ended with status {code}")
        self.close()
        return Difference("hang", f"no result after {_CASE_TIMEOUT:.0f} s")

    def close(self) -> None:
        """Stop the child."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def program(seed: int, size: int = 14) -> str:
    """Program number `seed`: even ones by the plain generator, odd ones by the wide one."""
    return wide_program(seed, size) if seed % 2 else random_program(seed, size)


def fuzz(
    target: str,
    *,
    seconds: float = 60.0,
    seed: int = 0,
    size: int = 14,
    count: int | None = None,
    folder: Path | None = None,
    shrink_seconds: float = 60.0,
    stop_after: int = 5,
) -> tuple[int, list[tuple[int, Difference, str]]]:
    """Compare random programs until time is up.

    Args:
        target: what to compile for.
        seconds: how long.
        seed: number of the first program.
        size: about how many statements a program has.
        count: number of programs at most.
        folder: where failures are written; None for nowhere.
        shrink_seconds: how long to spend on making one failure smaller.
        stop_after: number of failures that end the run.

    Returns:
        The number of programs, and (seed, difference, smallest program) of each failure.
    """
    run = Runner(target)
    failures: list[tuple[int, Difference, str]] = []
    end = time.monotonic() + seconds
    number = 0
    try:
        while time.monotonic() < end and (count is None or number < count):
            text = program(seed + number, size)
            found = run(text, seed + number)
            if found is not None:
                small = _smaller(run, text, seed + number, found, shrink_seconds)
                found = run(small, seed + number) or found
                failures.append((seed + number, found, small))
                if folder is not None:
                    _write(folder, target, *failures[-1])
                if len(failures) >= stop_after:
                    break
            number += 1
    finally:
        run.close()
    return number, failures


def _smaller(run: Runner, text: str, seed: int, found: Difference, seconds: float) -> str:
    """A smaller program with the same kind of difference."""

    def failing(candidate: str) -> bool:
        result = run(candidate, seed)
        if result is None or result.kind != found.kind:
            return False
        # Another error is another finding: keep to the first line's beginning.
        return found.kind not in ("error", "refused") or result.detail[:40] == found.detail[:40]

    try:
        return shrink(text, failing, seconds=seconds)
    except ValueError:
        return text  # it does not happen again: report it as it was


def _write(folder: Path, target: str, seed: int, found: Difference, program: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fuzz_{target}_{seed}.py"
    safe = program.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    path.write_text(
        _REPLAY.format(
            seed=seed, kind=found.kind, detail=found.detail.replace('"""', "'''"), name=path.name,
            program=safe, target=target,
        ),
        encoding="utf-8",
    )  # fmt: skip
    return path


def main(argv: list[str] | None = None) -> int:
    """The command line; the exit status is 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tilec.testing.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--size", type=int, default=14, help="statements per program")
    parser.add_argument("--count", type=int, default=None, help="programs at most")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--shrink-seconds", type=float, default=60.0)
    options = parser.parse_args(argv)
    start = time.monotonic()
    number, failures = fuzz(
        options.target,
        seconds=options.seconds,
        seed=options.seed,
        size=options.size,
        count=options.count,
        folder=options.out,
        shrink_seconds=options.shrink_seconds,
    )
    for seed, found, program in failures:
        print(f"--- seed {seed}: {found.kind}\n{found.detail}\n{program}")  # noqa: T201
    took = time.monotonic() - start
    print(f"{number} programs in {took:.0f} s, {len(failures)} failure(s)")  # noqa: T201
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
