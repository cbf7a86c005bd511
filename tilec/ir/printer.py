"""Printing IR as Python.

`script(func)` gives text that runs again: for tile form ``tilec.language.from_script(text)``
returns a structurally equal function. `to_text(node)` prints any node for messages and dumps.
"""

from __future__ import annotations

import builtins
import keyword
import math
from collections.abc import Callable
from enum import Enum
from typing import Any

from tilec.ir import stmt as s
from tilec.ir.buffer import LOCAL_VAR, Buffer, BufferRegion
from tilec.ir.dtype import FLOAT32, INT32, DType
from tilec.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    as_expr,
)
from tilec.ir.linear import fold_int
from tilec.ir.node import Node
from tilec.ir.operators import COMPARISONS, SYMBOL, UnOp

_PRECEDENCE = {
    "or": 1, "and": 2, "eq": 4, "ne": 4, "lt": 4, "le": 4, "gt": 4, "ge": 4, "bitor": 5,
    "bitxor": 6, "bitand": 7, "shl": 8, "shr": 8, "add": 9, "sub": 9, "mul": 10, "div": 10,
    "floordiv": 10, "floormod": 10,
}  # fmt: skip
_FUNCTION = {"truncdiv": "T.truncdiv", "truncmod": "T.truncmod", "min": "T.min", "max": "T.max",
             "pow": "T.pow"}  # fmt: skip
_NOT, _NEG, _ATOM = 3, 11, 13
_RESERVED = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | {"T"}
_ALLOC = {
    "shared": "alloc_shared",
    "shared.dyn": "alloc_shared",
    "local.fragment": "alloc_fragment",
    "local": "alloc_local",
}
_DEFAULT_SCOPE = {"alloc_shared": "shared.dyn", "alloc_fragment": "local.fragment"}
_LAUNCH_WORDS = ("prelude", "cluster_dims", "warp")
_LOOP = {"serial": "serial", "unroll": "unroll", "vectorized": "vectorized"}


def script(func: s.PrimFunc, **_options: Any) -> str:
    """A function as Python text, with the dynamic shape variables it needs in front."""
    return Printer().function(func)


def to_text(node: Node) -> str:
    """Any node as text (names are not made unique)."""
    printer = Printer(unique=False)
    if isinstance(node, Buffer):
        return node.name
    if isinstance(node, s.PrimFunc):
        return script(node)
    if isinstance(node, s.Module):
        return node.script()
    if isinstance(node, BufferRegion):
        return printer.region(node)
    if isinstance(node, Expr):
        return printer.expr(node)
    printer.stmt(node)
    return "\n".join(printer.lines)


class Printer:
    """Prints one function. Names are made unique by suffixes."""

    def __init__(self, *, unique: bool = True) -> None:
        self.lines: list[str] = []
        self._indent = 0
        self._names: dict[int, str] = {}
        self._keep: list[Node] = []
        self._taken: set[str] = set()
        self._unique = unique
        self._statements: dict[type, Callable[[Any], None]] = {
            s.Seq: self._sequence,
            s.Bind: self._bind,
            s.Alloc: self._alloc,
            s.Store: self._store,
            s.For: self._for,
            s.Parallel: self._parallel,
            s.While: lambda n: self._block(f"while {self.expr(n.cond)}:", n.body),
            s.If: self._if,
            s.Assert: lambda n: self.line(f"assert {self.expr(n.cond)}, {n.message!r}"),
            s.Evaluate: lambda n: self.line(
                self._call(n.value, wanted=False)
                if isinstance(n.value, Call)
                else f"T.evaluate({self.expr(n.value)})"
            ),
            s.Break: lambda _n: self.line("break"),
            s.Continue: lambda _n: self.line("continue"),
            s.Return: lambda _n: self.line("return"),
            s.Launch: self._launch,
        }

    def line(self, text: str) -> None:
        """Append one line at the current indentation."""
        self.lines.append("    " * self._indent + text)

    def name(self, node: Var | Buffer) -> str:
        """The unique name of a variable or buffer."""
        if not self._unique:
            return node.name
        known = self._names.get(id(node))
        if known is None:
            base = node.name if node.name.isidentifier() else "v"
            known, count = base, 0
            while known in self._taken or known in _RESERVED:
                count += 1
                known = f"{base}_{count}"
            self._taken.add(known)
            self._names[id(node)] = known
            self._keep.append(node)
        return known

    # expressions

    def expr(self, node: Any, level: int = 0, peer: DType | None = None) -> str:
        """An expression; `peer` is the type a bare literal would take in this place."""
        if isinstance(node, (int, float)):
            return repr(node)
        text, own = self._expr(node, peer)
        return f"({text})" if own < level else text

    def _expr(self, node: Expr, peer: DType | None) -> tuple[str, int]:
        if isinstance(node, Var):
            return self.name(node), _ATOM
        if isinstance(node, Const):
            return self._const(node, peer)
        if isinstance(node, Binary):
            return self._binary(node)
        if isinstance(node, Unary):
            if node.op is UnOp.NOT:
                return f"not {self.expr(node.value, _NOT)}", _NOT
            return f"{'-' if node.op is UnOp.NEG else '~'}{self.expr(node.value, _NEG)}", _NEG
        if isinstance(node, Select):
            args = ", ".join(self.expr(x) for x in (node.cond, node.then, node.other))
            return f"T.if_then_else({args})", _ATOM
        if isinstance(node, Cast):
            return f'T.cast({self.expr(node.value)}, "{node.dtype!s}")', _ATOM
        if isinstance(node, Load):
            if node.buffer.scope() == LOCAL_VAR:
                return self.name(node.buffer), _ATOM
            return f"{self.name(node.buffer)}[{self._indices(node.indices)}]", _ATOM
        if isinstance(node, Call):
            return self._call(node), _ATOM
        raise TypeError(f"no text for {type(node).__name__}")

    def _const(self, node: Const, peer: DType | None) -> tuple[str, int]:
        value = node.value
        text = repr(value)
        if isinstance(value, float) and not math.isfinite(value):
            text = f'float("{value}")'
        negative = text.startswith("-")
        if node.dtype.is_bool:
            return f'T.Const({text}, "bool")', _ATOM
        if peer is not None and peer == node.dtype and node.dtype.is_integer:
            return text, _NEG if negative else _ATOM
        if node.dtype == FLOAT32 and peer == FLOAT32 and not text.startswith("float"):
            return text, _NEG if negative else _ATOM
        return f"T.{node.dtype!s}({text})", _ATOM

    def _binary(self, node: Binary) -> tuple[str, int]:
        lhs_const, rhs_const = isinstance(node.lhs, Const), isinstance(node.rhs, Const)
        dtype = node.lhs.dtype
        # Python turns `2 < x` around, so a literal on the left of a comparison keeps its type.
        bare_left = not rhs_const and not dtype.is_bool and node.op not in COMPARISONS
        peer_l = dtype if bare_left else None
        peer_r = dtype if not lhs_const and not dtype.is_bool else None
        op = node.op.value
        if op in _FUNCTION:
            left, right = self.expr(node.lhs, 0, peer_l), self.expr(node.rhs, 0, peer_r)
            return f"{_FUNCTION[op]}({left}, {right})", _ATOM
        level = _PRECEDENCE[op]
        left = self.expr(node.lhs, level + (1 if level == 4 else 0), peer_l)
        right = self.expr(node.rhs, level + 1, peer_r)
        return f"{left} {SYMBOL[op]} {right}", level

    def _call(self, node: Call, *, wanted: bool = True) -> str:
        parts = [self._operand(a) for a in node.args]
        if node.name == "sync":
            return f"T.sync_threads({', '.join(parts)})"
        if node.name == "reinterpret":
            parts.append(f'"{node.dtype!s}"')
        parts += [f"{k}={self._operand(v)}" for k, v in node.attrs.items()]
        if wanted and node.name.startswith("atomic_"):
            parts.append("return_prev=True")
        return f"T.{node.name}({', '.join(parts)})"

    def _index(self, node: Any) -> str:
        if isinstance(node, Const) and node.dtype.is_integer:
            return repr(node.value) if node.dtype == INT32 else self.expr(node)
        return self.expr(node)

    def _indices(self, indices: tuple[Expr, ...]) -> str:
        return ", ".join(self._index(i) for i in indices) if indices else "()"

    def region(self, node: BufferRegion) -> str:
        """A region: the bare name for a whole buffer, slices otherwise."""
        whole = all(isinstance(m, Const) and m.value == 0 for m in node.mins) and all(
            e is x or (isinstance(e, int) and isinstance(x, int) and e == x)
            for e, x in zip(node.extents, node.buffer.shape, strict=True)
        )
        if whole and node.buffer.scope() != LOCAL_VAR:
            return self.name(node.buffer)
        if _sticks_out(node):  # only the head of a tile can; the other side gives its extents
            return f"{self.name(node.buffer)}[{', '.join(map(self._index, node.mins))}]"
        parts = []
        any_slice = False
        for low, size in zip(node.mins, node.extents, strict=True):
            start = self._index(low)
            if isinstance(size, int) and size == 1:
                parts.append(start)
            else:
                any_slice = True
                stop = self._index(as_expr(fold_int(low + size)))
                parts.append(f"{start}:{stop}")
        if not any_slice and parts:
            low = node.mins[-1]
            parts[-1] = f"{self._index(low)}:{self._index(as_expr(fold_int(low + 1)))}"
        return f"{self.name(node.buffer)}[{', '.join(parts)}]"

    def _operand(self, value: Any) -> str:
        """A tile operand, attribute or keyword value."""
        if isinstance(value, BufferRegion):
            return self.region(value)
        if isinstance(value, Buffer):
            return self.name(value)
        if isinstance(value, Const) and value.dtype in (INT32, FLOAT32):
            return self._const(value, value.dtype)[0]
        if isinstance(value, Expr):
            return self.expr(value)
        if isinstance(value, Enum):
            return f"T.{type(value).__name__}.{value.name}"
        to_script = getattr(value, "script", None)
        if callable(to_script):
            return str(to_script(self))
        if isinstance(value, (tuple, list)):
            inner = ", ".join(self._operand(v) for v in value)
            return f"[{inner}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self._operand(v)}" for k, v in value.items()) + "}"
        return str.__repr__(value) if isinstance(value, str) else repr(value)

    # statements

    def stmt(self, node: Any) -> None:
        """Print a statement."""
        if isinstance(node, s.TileOp):
            self._tile_op(node)
            return
        self._statements[type(node)](node)

    def _sequence(self, node: s.Seq) -> None:
        for child in node.stmts:
            self.stmt(child)

    def _block(self, header: str, body: s.Stmt | None) -> None:
        self.line(header)
        self._indent += 1
        mark = len(self.lines)
        if body is not None:
            self.stmt(body)
        if len(self.lines) == mark:
            self.line("pass")
        self._indent -= 1

    def _bind(self, node: s.Bind) -> None:
        value = self.expr(node.value)
        if isinstance(node.value, (Var, Const)) or (
            isinstance(node.value, Load) and node.value.buffer.scope() == LOCAL_VAR
        ):
            value = f"T.let({value})"
        self.line(f"{self.name(node.var)} = {value}")

    def _alloc(self, node: s.Alloc) -> None:
        buffer = node.buffer
        name = self.name(buffer)
        if buffer.scope() == LOCAL_VAR:
            init = "" if node.init is None else f", init={self.expr(node.init)}"
            self.line(f'{name} = T.alloc_var("{buffer.dtype!s}"{init})')
            return
        maker = _ALLOC.get(buffer.scope())
        shape = self._shape(buffer.shape)
        if maker is None:
            self.line(
                f'{name} = T.alloc_buffer({shape}, "{buffer.dtype!s}", scope="{buffer.scope()}")'
            )
            return
        default = _DEFAULT_SCOPE.get(maker, "local")
        scope = "" if buffer.scope() == default else f', scope="{buffer.scope()}"'
        self.line(f'{name} = T.{maker}({shape}, "{buffer.dtype!s}"{scope})')

    def _shape(self, shape: tuple[int | Expr, ...]) -> str:
        items = [self.expr(x) for x in shape]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def _store(self, node: s.Store) -> None:
        value = self.expr(node.value)
        if node.buffer.scope() == LOCAL_VAR:
            self.line(f"{self.name(node.buffer)} = {value}")
        else:
            self.line(f"{self.name(node.buffer)}[{self._indices(node.indices)}] = {value}")

    def _for(self, node: s.For) -> None:
        unit = isinstance(node.step, Const) and node.step.value == 1
        from_zero = isinstance(node.start, Const) and node.start.value == 0
        args = [] if from_zero and unit else [self._index(node.start)]
        args.append(self._index(node.stop))
        if not unit:
            args.append(self._index(node.step))
        notes = dict(node.annotations)
        if node.kind == "pipelined":
            maker = "Pipelined"
            args += [
                f"{k}={self._operand(notes.pop(k))}"
                for k in ("num_stages", "order", "stage")
                if k in notes
            ]
        else:
            maker = _LOOP.get(node.kind, node.kind)
            if "explicit" in notes:
                args.append(f"explicit={notes.pop('explicit')!r}")
            if "unroll_factor" in notes:
                args.append(f"unroll_factor={notes.pop('unroll_factor')!r}")
        if notes:
            args.append(f"annotations={self._operand(notes)}")
        self._block(f"for {self.name(node.var)} in T.{maker}({', '.join(args)}):", node.body)

    def _parallel(self, node: s.Parallel) -> None:
        names = ", ".join(self.name(v) for v in node.vars)
        args = [self._index(e) for e in node.extents]
        notes = dict(node.annotations)
        for key in ("coalesced_width", "loop_layout", "prefer_async"):
            if key in notes:
                args.append(f"{key}={self._operand(notes.pop(key))}")
        if notes:
            args.append(f"annotations={self._operand(notes)}")
        self._block(f"for {names} in T.Parallel({', '.join(args)}):", node.body)

    def _if(self, node: s.If, word: str = "if") -> None:
        self._block(f"{word} {self.expr(node.cond)}:", node.then)
        if isinstance(node.other, s.If):
            self._if(node.other, "elif")
        elif node.other is not None:
            self._block("else:", node.other)

    def _tile_op(self, node: s.TileOp) -> None:
        parts = []
        for key in node._fields:
            value = getattr(node, key)
            if key in node._defaults:
                default = node._defaults[key]
                if value is default or (not isinstance(value, Node) and value == default):
                    continue
                parts.append(f"{key}={self._operand(value)}")
            else:
                parts.append(self._operand(value))
        self.line(f"T.{node.script_name or type(node).__name__}({', '.join(parts)})")

    def _launch(self, node: s.Launch) -> None:
        args = [self._index(g) for g in node.grid]
        if node.threads is not None:
            count = list(node.threads)
            while len(count) > 1 and count[-1] == 1:
                count.pop()
            args.append(f"threads={count[0] if len(count) == 1 else count!r}")
        notes = dict(node.annotations)
        swizzle, layouts = notes.pop("swizzle", None), notes.pop("layouts", None)
        args += [f"{k}={self._operand(notes.pop(k))}" for k in _LAUNCH_WORDS if k in notes]
        names = [self.name(v) for v in node.grid_vars]
        target = names[0] if len(names) == 1 else f"({', '.join(names)})"
        self.line(f"with T.Kernel({', '.join(args)}) as {target}:")
        self._indent += 1
        used = _used_ids(node.body)
        for axis, var in enumerate(node.thread_vars):
            if id(var) in used:
                self.line(f"{self.name(var)} = T.get_thread_binding({axis})")
        mark = len(self.lines)
        if swizzle is not None:
            self.line(f"T.use_swizzle({swizzle[0]}, {swizzle[1]!r})")
        self.stmt(node.body)
        if notes:  # below the buffers that they may name
            words = ", ".join(f"{k}={self._operand(v)}" for k, v in notes.items())
            self.line(f"T.annotate_launch({words})")
        if layouts is not None:
            pairs = ", ".join(f"{self.name(b)}: {self._operand(x)}" for b, x in layouts)
            self.line(f"T.annotate_layout({{{pairs}}})")
        if len(self.lines) == mark:
            self.line("pass")
        self._indent -= 1

    # functions

    def function(self, func: s.PrimFunc) -> str:
        """A whole function."""
        dynamic: dict[Var, None] = {}
        scalar = {p for p in func.params if isinstance(p, Var)}
        for param in func.params:
            self.name(param)
            if isinstance(param, Buffer):
                for extent in (*param.shape, *(param.strides or ())):
                    for var in _vars_in(extent):
                        if var not in scalar:
                            dynamic.setdefault(var)
        for var in dynamic:
            suffix = "" if var.dtype == INT32 else f', "{var.dtype!s}"'
            self.line(f'{self.name(var)} = T.dynamic("{var.name}"{suffix})')
        if dynamic:
            self.lines += ["", ""]
        params = ", ".join(self._param(p) for p in func.params)
        self.line("@T.prim_func")
        self.line(f"def {func.name}({params}):")
        self._indent += 1
        if func.attrs:
            self.line(f"T.func_attr({self._operand(func.attrs)})")
        mark = len(self.lines)
        self.stmt(func.body)
        if len(self.lines) == mark and not func.attrs:
            self.line("pass")
        self._indent -= 1
        return "\n".join(self.lines) + "\n"

    def _param(self, param: Buffer | Var) -> str:
        if isinstance(param, Var):
            return f"{self.name(param)}: T.{param.dtype!s}"
        shape = self._shape(param.shape)
        if param.strides is not None:
            strides = self._shape(param.strides)
            return f'{self.name(param)}: T.StridedTensor({shape}, {strides}, "{param.dtype!s}")'
        return f'{self.name(param)}: T.Tensor({shape}, "{param.dtype!s}")'


def _vars_in(value: Any) -> list[Var]:
    from tilec.ir.visitor import free_vars

    return list(free_vars(value)) if isinstance(value, Expr) else []


def _used_ids(node: Node) -> set[int]:
    from tilec.ir.visitor import walk

    return {id(n) for n in walk(node) if isinstance(n, Var)}


def _sticks_out(region: BufferRegion) -> bool:
    """Whether a region at a constant place ends after its buffer does."""
    for low, size, extent in zip(region.mins, region.extents, region.buffer.shape, strict=True):
        stop = fold_int(low + size)
        if isinstance(stop, int) and isinstance(extent, int) and stop > extent:
            return True
    return False
