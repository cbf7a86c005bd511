"""NVRTC: from CUDA C++ to machine code, inside the process and without a device.

The library is found beside this Python (the wheel ``nvidia-cuda-nvrtc``), through
``cuda.pathfinder`` (which comes with ``cuda-bindings``), or by the system's loader; it is called
through ctypes, which costs less than importing ``cuda.bindings``. Compilations run in parallel.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tilec.diagnostics import NativeCompileError, Span, ToolchainError

MAJORS = (13, 12)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "nvrtcVersion": (POINTER(c_int), POINTER(c_int)),
    "nvrtcGetNumSupportedArchs": (POINTER(c_int),),
    "nvrtcGetSupportedArchs": (POINTER(c_int),),
    "nvrtcCreateProgram": (POINTER(c_void_p), c_char_p, c_char_p, c_int, c_void_p, c_void_p),
    "nvrtcCompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
    "nvrtcGetProgramLogSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetProgramLog": (c_void_p, c_char_p),
    "nvrtcGetCUBINSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetCUBIN": (c_void_p, c_char_p),
    "nvrtcGetPTXSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetPTX": (c_void_p, c_char_p),
    "nvrtcDestroyProgram": (POINTER(c_void_p),),
}


class CubinCache(Protocol):
    """Where compiled programs are kept between compilations; the key names everything."""

    def get(self, key: str) -> bytes | None:
        """What was put under a key."""

    def put(self, key: str, value: bytes) -> None:
        """Keep something under a key."""


class Compiled(NamedTuple):
    """What a compilation gives.

    Attributes:
        image: a cubin, or PTX where the architecture is a ``compute_`` one.
        log: messages of the compiler and the assembler.
    """

    image: bytes
    log: str


class Resources(NamedTuple):
    """What one kernel needs, as the assembler reports it.

    Attributes:
        registers: per thread.
        spill_stores, spill_loads: bytes per thread that did not fit into registers.
        stack: bytes of local memory per thread.
        shared: bytes of static shared memory per block.
        barriers: named barriers.
    """

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    shared: int = 0
    barriers: int = 0


class Nvrtc:
    """One libnvrtc.

    Attributes:
        path: where it is.
        version: such as ``(13, 0)``.
    """

    def __init__(self, path: str) -> None:
        """Load the library.

        Raises:
            ToolchainError: it cannot be loaded.
        """
        self.path = path
        _preload_builtins(Path(path))
        try:
            self._library = ctypes.CDLL(path)
            for name, kinds in _FUNCTIONS.items():
                function = getattr(self._library, name)
                function.argtypes, function.restype = kinds, c_int
            self._error_text = self._library.nvrtcGetErrorString
            self._error_text.argtypes, self._error_text.restype = (c_int,), c_char_p
        except (OSError, AttributeError) as error:
            raise ToolchainError(f"NVRTC at {path} cannot be used: {error}") from error
        major, minor = c_int(), c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)

    @property
    def identity(self) -> str:
        """Cache-key text: differs whenever the same source may become different code."""
        stat = Path(self.path).stat() if Path(self.path).exists() else None
        size = "" if stat is None else f" {stat.st_size}-{stat.st_mtime_ns}"
        return f"NVRTC {self.version[0]}.{self.version[1]}{size}"

    @functools.cached_property
    def architectures(self) -> frozenset[int]:
        """Numbers of the architectures that it compiles for."""
        count = c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return frozenset(numbers)

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise ToolchainError(f"{name} failed: {self._text(status)}")

    def _text(self, status: int) -> str:
        return str((self._error_text(status) or b"").decode(errors="replace"))

    def compile(
        self,
        source: str,
        arch: str,
        options: Sequence[str] = (),
        *,
        name: str = "kernel.cu",
        cache: CubinCache | None = None,
    ) -> Compiled:
        """Compile a translation unit; several threads may do so at once.

        Args:
            source: CUDA C++ that includes nothing.
            arch: ``sm_90a`` for machine code, ``compute_90`` for PTX.
            options: besides the architecture.
            name: of the file, for messages.
            cache: asked first, told afterwards.

        Raises:
            NativeCompileError: the source was refused; notes show the lines.
            ToolchainError: NVRTC itself failed.
        """
        flags = (f"--gpu-architecture={arch}", *options)
        key = cache_key(self, source, flags)
        if cache is not None:
            kept = _unpack(cache.get(key))
            if kept is not None:
                return kept
        program = c_void_p()
        given = (source.encode(), name.encode(), 0, None, None)
        self._call("nvrtcCreateProgram", ctypes.byref(program), *given)
        try:
            words = (c_char_p * len(flags))(*(flag.encode() for flag in flags))
            status = self._library.nvrtcCompileProgram(program, len(flags), words)
            log = self._bytes("nvrtcGetProgramLog", program).decode(errors="replace").rstrip("\0\n")
            if status:
                assembly = self._assembly(program, log)
                raise _refused(log or self._text(status), source, name, flags, assembly)
            what = "nvrtcGetPTX" if arch.startswith("compute_") else "nvrtcGetCUBIN"
            result = Compiled(self._bytes(what, program), log)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))
        if cache is not None:
            cache.put(key, _pack(result))
        return result

    def _assembly(self, program: c_void_p, log: str) -> list[str]:
        """The lines of PTX that the assembler complains of, where it got that far."""
        numbers = [int(n) for n in re.findall(r"^ptxas .*line (\d+); error", log, re.MULTILINE)]
        if not numbers:
            return []
        try:
            lines = self._bytes("nvrtcGetPTX", program).decode(errors="replace").splitlines()
        except ToolchainError:
            return []
        return _excerpt(lines, sorted(set(numbers)), "ptx")

    def _bytes(self, name: str, program: c_void_p) -> bytes:
        size = c_size_t()
        self._call(f"{name}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(name, program, buffer)
        return buffer.raw


def cache_key(compiler: Nvrtc, source: str, flags: Sequence[str]) -> str:
    """A digest of everything that a compilation depends on."""
    digest = hashlib.sha256()
    for part in (compiler.identity, *flags, source):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _pack(result: Compiled) -> bytes:
    log = result.log.encode()
    body = len(log).to_bytes(8, "little") + log + result.image
    return hashlib.sha256(body).digest() + body


def _unpack(data: bytes | None) -> Compiled | None:
    """The inverse of `_pack`; None for what is damaged."""
    if data is None or len(data) < 40 or hashlib.sha256(data[32:]).digest() != data[:32]:
        return None
    size = int.from_bytes(data[32:40], "little")
    return Compiled(data[40 + size :], data[40 : 40 + size].decode())


# --- finding -------------------------------------------------------------------------------------


@functools.cache
def find_nvrtc() -> Nvrtc:
    """The newest libnvrtc that can be loaded.

    Raises:
        ToolchainError: there is none; the notes say what was tried.
    """
    tried = []
    for path in _places():
        try:
            return Nvrtc(path)
        except ToolchainError as error:
            tried.append(error.message)
    raise ToolchainError(
        "NVRTC, the run-time compiler of CUDA, was not found",
        notes=tried,
        hint='pip install "tilec[cuda]", or nvidia-cuda-nvrtc alone; no CUDA toolkit is needed',
    )


def _places() -> Iterator[str]:
    for major in MAJORS:
        for folder in (f"nvidia/cu{major}/lib", "nvidia/cuda_nvrtc/lib"):
            for root in sys.path:
                path = Path(root or ".") / folder / f"libnvrtc.so.{major}"
                if path.is_file():
                    yield str(path)
    with suppress(Exception):  # whatever a foreign package raises, the next place is tried
        from cuda.pathfinder import (  # noqa: PLC0415 - optional, and slow to import
            load_nvidia_dynamic_lib,
        )

        found = load_nvidia_dynamic_lib("nvrtc").abs_path
        if found:
            yield str(found)
    for major in MAJORS:
        yield f"libnvrtc.so.{major}"
        yield f"/usr/local/cuda/lib64/libnvrtc.so.{major}"


def _preload_builtins(path: Path) -> None:
    """Some builds do not look for their second library beside the first."""
    if path.parent == Path():
        return
    for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*"), reverse=True):
        with suppress(OSError):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return


# --- messages ------------------------------------------------------------------------------------

_MESSAGE = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<severity>(?:catastrophic |internal )?error|warning)"
    r"(?: #[\w-]+)?: (?P<text>.*)$",
    re.MULTILINE,
)
_LINE = re.compile(r'^\s*#\s*(?:line\s+)?(?P<line>\d+)(?:\s+"(?P<file>(?:[^"\\]|\\.)*)")?')
_CONTEXT = 2


def _origins(source: str, name: str) -> Iterator[tuple[int, str, int]]:
    """Per line of the text: its number, and the file and line that ``#line`` gives it."""
    file, line = name, 0
    for number, text in enumerate(source.splitlines(), 1):
        directive = _LINE.match(text)
        if directive is not None:
            line = int(directive["line"]) - 1
            if directive["file"] is not None:
                file = re.sub(r"\\(.)", r"\1", directive["file"])
            continue
        line += 1
        yield number, file, line


def _refused(
    log: str, source: str, name: str, flags: Sequence[str], assembly: Sequence[str] = ()
) -> NativeCompileError:
    """A failed compilation: the user's line where it is known, and the generated ones."""
    errors = [m for m in _MESSAGE.finditer(log) if "error" in m["severity"]]
    first = next((m for m in errors if m["file"].endswith(".py")), errors[0] if errors else None)
    span, shown = None, [*assembly]
    if first is None:
        lines = [line for line in log.splitlines() if line.strip()]
        fatal = [line for line in lines if "error" in line or "fatal" in line]
        what = f"the CUDA compiler failed: {(fatal or lines or ['no message'])[0]}"
    else:
        what = f"the CUDA compiler rejected the generated code: {first['text']}"
        line = int(first["line"])
        if first["file"].endswith(".py"):
            span = Span(first["file"], line, 1, line, 1)
        places = [
            n for n, file, at in _origins(source, name) if (file, at) == (first["file"], line)
        ]
        shown = _excerpt(source.splitlines(), places, name)
    messages = log.strip().splitlines()
    if len(messages) > 40:
        messages = [*messages[:40], f"... {len(messages) - 40} more lines"]
    return NativeCompileError(
        what, span=span, notes=(*shown, f"flags: {' '.join(flags)}", *messages)
    )


def _excerpt(lines: Sequence[str], places: Sequence[int], name: str) -> list[str]:
    """The generated lines in question, with a few around them."""
    shown: list[int] = []
    for place in places[:8]:
        for number in range(place - _CONTEXT, place + _CONTEXT + 1):
            if 1 <= number <= len(lines) and number not in shown:
                shown.append(number)
    return [
        f"{name}:{n}{'>' if n in places else ':'} {lines[n - 1].rstrip()}" for n in sorted(shown)
    ]


_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_SPILLS = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers(?P<rest>.*)")
SERIOUS = ("C7504", "C7508", "C7514", "C7515", "C7519")
"""Messages of the assembler that say that a kernel is much slower than it was meant to be."""


def resources(log: str) -> dict[str, Resources]:
    """What the assembler says about each kernel of a program."""
    found: dict[str, Resources] = {}
    name = ""
    for line in log.splitlines():
        entry, spills, used = _ENTRY.search(line), _SPILLS.search(line), _USED.search(line)
        if entry:
            name = entry["name"]
            found.setdefault(name, Resources())
        elif spills and name:
            found[name] = found[name]._replace(
                stack=int(spills["stack"]),
                spill_stores=int(spills["stores"]),
                spill_loads=int(spills["loads"]),
            )
        elif used and name:
            rest = used["rest"]
            shared = re.search(r"(\d+) bytes smem", rest)
            barriers = re.search(r"used (\d+) barriers", rest)
            found[name] = found[name]._replace(
                registers=int(used["registers"]),
                shared=int(shared[1]) if shared else 0,
                barriers=int(barriers[1]) if barriers else 0,
            )
    return found


def complaints(log: str) -> list[str]:
    """Warnings of the compiler, and what the assembler warns of or says in `SERIOUS` codes."""
    found = [f"{m['text']} ({m['file']}:{m['line']})" for m in _MESSAGE.finditer(log)
             if m["severity"] == "warning"]  # fmt: skip
    for line in log.splitlines():
        is_serious = any(code in line for code in SERIOUS)
        if line.startswith("ptxas") and (is_serious or "warning" in line):
            found.append(line.strip())
    return list(dict.fromkeys(found))
