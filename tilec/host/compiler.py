"""Calling the host's C compiler: candidates, runs with a time limit, messages, private outputs.

What a backend builds with it, and with which flags, is the backend's; `build_stub` is enough for
generated host functions.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.diagnostics import NativeCompileError, Span, ToolchainError
from tilec.options import options

STUB_FLAGS: tuple[str, ...] = (
    "-std=gnu11", "-O1", "-fPIC", "-fvisibility=hidden", "-fwrapv", "-fno-strict-aliasing",
)  # fmt: skip
STUB_LIBRARIES: tuple[str, ...] = ("-lm", "-ldl")
_SERIAL = itertools.count()
_MESSAGE = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<col>\d+):)?\s*"
    r"(?P<severity>fatal error|error|warning|note):\s*(?P<text>.*)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Unit:
    """One C file of a program: its text and how hard to optimise it (0 to 3)."""

    name: str
    source: str
    optimize: int = 3


@dataclass(frozen=True, slots=True)
class CompileResult:
    """A built library: where it is, the compiler's warnings, what was run, and how long it took."""

    path: Path
    log: str
    commands: tuple[tuple[str, ...], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class CompilerMessage:
    """One diagnostic line of a compiler, located as its ``#line`` directives say."""

    file: str
    line: int
    column: int
    severity: str
    text: str


def parse_messages(stderr: str) -> list[CompilerMessage]:
    """The located diagnostics in a compiler's output, in order."""
    return [
        CompilerMessage(m["file"], int(m["line"]), int(m["col"] or 1), m["severity"], m["text"])
        for m in _MESSAGE.finditer(stderr)
    ]


@dataclass(frozen=True, slots=True)
class StubCompiler:
    """The compiler of generated host functions.

    Attributes:
        argv: how to call it.
    """

    argv: tuple[str, ...]

    @property
    def identity(self) -> str:
        """Cache-key text: differs whenever the executable does."""
        try:
            stat = Path(self.argv[0]).stat()
        except OSError:
            return " ".join(self.argv)
        return f"{' '.join(self.argv)} {stat.st_size}-{stat.st_mtime_ns} {' '.join(STUB_FLAGS)}"


def find_stub_compiler() -> StubCompiler:
    """The first C compiler on the PATH; whether it works shows when it is used.

    Raises:
        ToolchainError: there is none, or not the one that the option ``cc`` names.
    """
    wanted = options.cc
    for argv in candidates(wanted):
        path = shutil.which(argv[0])
        if path is None or (argv[1:3] == ("-m", "ziglang") and not _has_ziglang()):
            continue
        return StubCompiler((path, *argv[1:]))
    raise ToolchainError(
        f"the C compiler {' '.join(wanted)!r} was not found"
        if wanted
        else "no C compiler was found (cc, gcc, clang)",
        hint="install gcc or clang, or `pip install ziglang`, or set CC to a compiler",
    )


def _has_ziglang() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - only without a system compiler

    return find_spec("ziglang") is not None


def build_stub(source: str, name: str) -> CompileResult:
    """Compile one generated host source into a shared library of its own.

    Args:
        source: C text.
        name: file stem.

    Raises:
        ToolchainError: no compiler, or the output cannot be written.
        NativeCompileError: the compiler refused the source.
    """
    argv = find_stub_compiler().argv
    command = (*argv, *STUB_FLAGS, "-shared", "-o", "out.so", f"{name}.c", *STUB_LIBRARIES)

    def build(work: Path) -> tuple[Path, str, tuple[tuple[str, ...], ...]]:
        (work / f"{name}.c").write_text(source, encoding="utf-8")
        log = checked([command], work, float(options.compile_timeout))
        return work / "out.so", log, (command,)

    return deliver(build, name)


def deliver(
    build: Callable[[Path], tuple[Path, str, tuple[tuple[str, ...], ...]]],
    name: str,
    output: Path | None = None,
) -> CompileResult:
    """Run a build in a scratch folder and move what it made to its place in one step.

    Args:
        build: from a scratch folder to (the file, the compiler's messages, the commands).
        name: file stem of the default output.
        output: where the file goes; by default a private directory, removed when Python exits.

    Raises:
        ToolchainError: the output cannot be written.
    """
    target = output if output is not None else private_directory() / f"{name}-{next(_SERIAL)}.so"
    started = time.perf_counter()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the output, so that the final rename stays inside one file system.
        with tempfile.TemporaryDirectory(prefix=".tilec-cc-", dir=target.parent) as text:
            built, log, commands = build(Path(text))
            built.replace(target)
    except OSError as error:
        raise ToolchainError(f"cannot build a library at {target}: {error}") from error
    return CompileResult(target, log, commands, time.perf_counter() - started)


def candidates(cc: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Compiler commands to try, in order.

    Args:
        cc: the only one, where it is not empty.
    """
    if cc:
        yield cc  # a compiler asked for by name is used or reported, never silently replaced
        return
    for command in ("cc", "gcc", "clang"):
        yield (command,)
    yield (sys.executable, "-m", "ziglang", "cc")


def last_line(text: str) -> str:
    """The last line of a compiler's output that speaks of an error, else the last one."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line]
    return (errors or lines or [""])[-1].strip()


def checked(commands: Sequence[tuple[str, ...]], work: Path, timeout: float) -> str:
    """Run commands side by side; their joined stderr, or the first failure as an error."""
    deadline = time.monotonic() + timeout if timeout else None
    running = [_start(command, work) for command in commands]
    results: list[tuple[int, str]] = []
    try:
        for process in running:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            _, err = process.communicate(timeout=left)
            results.append((process.returncode, err))
    except subprocess.TimeoutExpired as error:
        raise NativeCompileError(
            f"the C compiler did not finish within {timeout:g} s",
            notes=(f"command: {' '.join(commands[0])}",),
        ) from error
    finally:
        for process in running:
            _stop(process)
    for command, (code, err) in zip(commands, results, strict=True):
        if code != 0:
            raise _compile_error(command, code, err)
    return "".join(err for _, err in results)


def _compile_error(command: tuple[str, ...], code: int, stderr: str) -> NativeCompileError:
    messages = parse_messages(stderr)
    errors = [m for m in messages if "error" in m.severity]
    # A position in Python source came through #line; one in the generated C has no user line.
    first = next((m for m in errors if m.file.endswith(".py")), errors[0] if errors else None)
    span = None
    if first is not None and first.file.endswith(".py"):
        span = Span(first.file, first.line, 1, first.line, 1)
    if code < 0:
        what = f"the C compiler was stopped by signal {-code}"
    elif first is not None:
        what = f"the C compiler rejected the generated code: {first.text}"
    else:
        what = f"the C compiler failed with status {code}: {last_line(stderr)}"
    shown = stderr.strip().splitlines()
    if len(shown) > 40:
        shown = [*shown[:40], f"... {len(shown) - 40} more lines"]
    return NativeCompileError(what, span=span, notes=(f"command: {' '.join(command)}", *shown))


def _start(command: tuple[str, ...], work: Path) -> subprocess.Popen[str]:
    # Messages are parsed, so they must come in English whatever the user's language is.
    prefix = ("/usr/bin/env", "LC_ALL=C") if Path("/usr/bin/env").exists() else ()
    return subprocess.Popen(
        (*prefix, *command),
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # so that a timeout stops the compiler's children too
    )


def run(command: tuple[str, ...], work: Path, timeout: float) -> tuple[int, str, str]:
    """Run one command; its status, output and error output."""
    process = _start(command, work)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        _stop(process)
    return process.returncode, out, err


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, OSError):
        process.kill()
    process.communicate()


@functools.cache
def private_directory() -> Path:
    """A folder of this process that is removed when Python exits."""
    import atexit  # noqa: PLC0415 - only when a library has no home of its own

    path = Path(tempfile.mkdtemp(prefix="tilec-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
