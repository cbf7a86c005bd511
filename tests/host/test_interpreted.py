"""Without a C compiler: the interpreted host function against the generated C, call by call."""

from __future__ import annotations

import ctypes
import itertools
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from host_kernels import CC, host_func

from tilec import ir
from tilec.host import generate_host_source, host_symbol
from tilec.host.abi import TypeIndex, dlpack_dtype
from tilec.host.callable import NativeEntry
from tilec.host.interpreted import CallState, InterpretedEntry
from tilec.host.launches import DeviceCalls, LaunchSite, Passed
from tilec.host.packing import Frame, ffi
from tilec.ir import Buffer, DType, PrimFunc, Var

DEVICE = 7
FLOAT32, INT32 = DType("float32"), DType("int32")


class Calls(DeviceCalls):
    """A device whose launches do nothing."""

    device_name = "gadget"
    alignment = {"A": 16}  # noqa: RUF012 - never changed

    def launch(self, site: LaunchSite, kernel: str, passed: Sequence[Passed]) -> None:
        for argument in passed:
            site.out.line(f"(void)({argument.text});")


def kernels() -> dict[str, PrimFunc]:
    n, m, k = (Var(name, INT32) for name in "nmk")
    s, t = Var("s", INT32), Var("t", DType("int64"))
    f, u, b = Var("f", FLOAT32), Var("u", DType("uint64")), Var("b", DType("bool"))

    def buffer(name: str, *shape: Any, dtype: str = "float32", strides: Any = None) -> Buffer:
        return Buffer(name, shape, DType(dtype), strides=strides)

    def func(name: str, *params: Any, before: Sequence[ir.Stmt] = (), **keywords: Any) -> PrimFunc:
        made = host_func(name, params, device_type=DEVICE, before=before, **keywords)
        return made.with_attr("written", ["C"])

    positive = ir.Assert(n > 3, "n must be more than three")
    return {
        "plain": func("plain", buffer("A", n, 4), buffer("B", 4), buffer("C", n)),
        "solved": func("solved", buffer("A", n * 2 + 1), buffer("C", n + m, m)),
        "late": func("late", buffer("A", n + m), buffer("B", n), buffer("C", m)),
        "strided": func(
            "strided", buffer("A", n, m, strides=(s, 1)), buffer("C", n, m, strides=(t, s))
        ),
        "scalars": func("scalars", f, u, b, k, buffer("C", k, 2)),
        "checked": func("checked", buffer("A", n), buffer("C", 3, n), before=[positive]),
        "optional": func("optional", buffer("A", n), buffer("B", n, m), used=["A"]),
        "halves": func("halves", buffer("A", n, dtype="bfloat16"), buffer("C", n, dtype="bool")),
        "odd": func("odd", buffer("A", n, dtype="float8_e4m3"), buffer("C", (n + 3) // 4)),
    }


class Memory:
    """Packed arguments made at random, right ones and wrong ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.keep: list[Any] = []
        self.base = ctypes.create_string_buffer(1 << 16)
        self.start = ctypes.addressof(self.base)
        self.start += -self.start % 256

    def pick(self, usual: Any, *others: Any) -> Any:
        """Mostly the first."""
        return usual if self.random.random() < 0.93 else self.random.choice(others)

    def tensor(self, buffer: Buffer, sizes: dict[str, int], place: int) -> int:
        c = ffi()
        shape = [self.pick(_value(e, sizes), 0, 1, 5, 2**33) for e in buffer.shape]
        shape = self.pick(shape, [*shape, 2], shape[1:])
        strides, step = [], 1
        for extent in reversed(shape):
            strides.insert(0, self.pick(step, step + 1, 2 * step, -1))
            step *= extent
        if buffer.strides is not None and self.random.random() < 0.5 and strides:
            strides[0] += 2
        dtype = self.pick(
            dlpack_dtype(buffer.dtype), (2, 64, 1), (0, 32, 1), (77, 8, 1), (2, 32, 2)
        )
        t = c.new("DLTensor*")
        shapes, steps = c.new("int64_t[]", shape or 1), c.new("int64_t[]", strides or 1)
        self.keep += [t, shapes, steps]
        offset = self.pick(0, 0, 1, 4, 16)
        t.data = c.cast("void*", self.pick(self.start + place * 4096, 0, self.start + 4))
        t.device.device_type, t.device.device_id = self.pick(DEVICE, 1, 2), self.pick(0, 1)
        t.ndim = len(shape)
        t.dtype.code, t.dtype.bits, t.dtype.lanes = dtype
        t.shape = shapes
        t.strides = self.pick(steps, c.NULL)
        t.byte_offset = offset
        return int(c.cast("intptr_t", t))

    def frame(self, func: PrimFunc) -> tuple[Frame, int]:
        sizes = {name: self.random.choice([0, 1, 4, 6]) for name in "nmkst"}
        kinds = [
            TypeIndex.DLTENSOR_POINTER
            if isinstance(p, Buffer)
            else TypeIndex.FLOAT if p.dtype.is_float else TypeIndex.INT
            for p in func.params
        ]  # fmt: skip
        frame = Frame(kinds)
        for n, param in enumerate(func.params):
            if isinstance(param, Buffer):
                frame.ints[2 * n + 1] = self.pick(self.tensor(param, sizes, n), 0)
                kind = self.pick(kinds[n], TypeIndex.NONE, TypeIndex.INT, TypeIndex.STRING)
                frame.heads[4 * n] = kind
            elif param.dtype.is_float:
                frame.floats[2 * n + 1] = 1.5
                frame.heads[4 * n] = self.pick(TypeIndex.FLOAT, TypeIndex.INT, TypeIndex.NONE)
            else:
                usual = sizes.get(param.name, 1)
                frame.ints[2 * n + 1] = self.pick(usual, -1, 2**40, 300)
                kind = self.pick(TypeIndex.INT, TypeIndex.BOOL, TypeIndex.FLOAT, TypeIndex.DICT)
                frame.heads[4 * n] = kind
        return frame, self.pick(len(func.params), 0, len(func.params) + 1)


def _value(extent: Any, sizes: dict[str, int]) -> int:
    from tilec.host.evaluate import compile_int

    if isinstance(extent, int):
        return extent
    return compile_int(extent)({v: sizes[v.name] for v in ir.free_vars(extent)})


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Callable[[PrimFunc], NativeEntry]:
    if CC is None:
        pytest.skip("no C compiler")
    folder: Path = tmp_path_factory.mktemp("interpreted")

    def build(func: PrimFunc) -> NativeEntry:
        source = folder / f"{func.name}.c"
        source.write_text(generate_host_source(func, calls=Calls()))
        flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-lm"]
        library = source.with_suffix(".so")
        subprocess.run([str(CC), *flags, str(source), "-o", str(library)], check=True, timeout=60)
        return NativeEntry(library, host_symbol(func.name), func.name)

    return build


@pytest.mark.parametrize("name", list(kernels()))
def test_both_say_the_same(name: str, native: Callable[[PrimFunc], NativeEntry]) -> None:
    func = kernels()[name]
    launched: list[CallState] = []
    ours = InterpretedEntry(func, Calls(), lambda kernel, passed, state: launched.append(state))
    theirs = native(func)
    seen: set[str] = set()
    good = 0
    for seed in range(1500):
        memory = Memory(seed)
        frame, count = memory.frame(func)
        status = theirs.call(frame.args, count, frame.result)
        assert ours.call(frame.args, count, frame.result) == status, (seed, theirs.error())
        if status:
            assert ours.error() == theirs.error(), seed
            seen.add(theirs.error()[1].split(" expected ")[0])
        else:
            good += 1
    assert good > 100, "hardly any call was right"
    assert len(launched) == good
    assert len(seen) >= 8, sorted(seen)


def test_what_a_launch_sees() -> None:
    func = kernels()["strided"]
    calls: list[Any] = []
    entry = InterpretedEntry(func, Calls(), lambda *given: calls.append(given))
    for seed in itertools.count():
        memory = Memory(seed)
        frame, count = memory.frame(func)
        frame.stream[1] = 99
        if entry.call(frame.args, count, frame.result) == 0:
            break
    [(kernel, passed, state)] = calls
    assert kernel == "strided_kernel"
    assert state.stream == 99
    assert state.device in (0, 1)
    assert {v.name for v in state.env} == {"n", "m", "s", "t"}
    assert [p for p in passed if isinstance(p, Buffer)] == list(func.params)
