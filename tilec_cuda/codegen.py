"""The CUDA printer: device functions as one self-contained translation unit."""

from __future__ import annotations

import re

from tilec import ir
from tilec.backend import BackendContext, DeviceProgram
from tilec.transform.base import PassConfigKey
from tilec_cuda.arch import Arch
from tilec_cuda.expr import CudaExprPrinter
from tilec_cuda.names import RESERVED
from tilec_cuda.prelude import TYPES, render
from tilec_cuda.stmt import CudaPrinter


def emit_device(module: ir.Module, context: BackendContext) -> DeviceProgram:
    """The device program: one file with all kernels of a function; no compiler is called."""
    config = context.pass_context()
    arch = Arch.parse(str(context.target.get("arch")))
    source = print_module(
        module,
        arch,
        fast_math=config.flag(PassConfigKey.TL_ENABLE_FAST_MATH),
        line_directives=config.flag(PassConfigKey.TL_EMIT_LINE_DIRECTIVES),
        noalias=config.flag(PassConfigKey.TIR_NOALIAS),
    )
    return DeviceProgram("cu", source, tuple(module.functions), attrs={"arch": str(arch)})


def print_module(
    module: ir.Module,
    arch: Arch,
    *,
    fast_math: bool = False,
    line_directives: bool = False,
    noalias: bool = True,
) -> str:
    """The text of device functions.

    Args:
        module: device functions in split form.
        arch: what the code is for.
        fast_math: whether fast, less exact functions may stand for exact ones.
        line_directives: whether ``#line`` leads back to the Python source.
        noalias: whether buffer parameters may be declared not to overlap.
    """
    pieces: set[str] = set()
    texts: list[str] = []
    headers: list[str] = []
    for func in module.functions.values():
        expr = CudaExprPrinter(arch, fast_math=fast_math)
        for name in (*RESERVED, *module.functions):
            expr.names.reserve(name)
        exclusive = noalias and bool(func.attrs.get("noalias", True))
        printer = CudaPrinter(expr, func, line_directives=line_directives, noalias=exclusive)
        printer.kernel()
        pieces |= expr.pieces
        texts.append(printer.text())
        prelude = func.attrs.get("annotations", {}).get("prelude")
        if prelude and str(prelude) not in headers:
            headers.append(str(prelude))
    # What was asked for while a text was only tried is left out.
    mentioned = set(re.findall(r"\btilec_(\w+)", "".join(texts)))
    parts = [TYPES, render(pieces & mentioned), *(h.rstrip() + "\n" for h in headers), *texts]
    return "\n".join(part for part in parts if part)
