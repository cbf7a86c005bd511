"""The intermediate representation: nodes, types, printing, comparison, verification."""

from tilec.ir.buffer import (
    EMITTER,
    FRAGMENT,
    GLOBAL,
    LOCAL,
    LOCAL_VAR,
    SHARED,
    SHARED_DYN,
    Buffer,
    BufferRegion,
    Emitter,
    check_shape,
    emitter,
    shape_text,
)
from tilec.ir.dtype import DType, promote, scalar_names
from tilec.ir.expr import (
    BITWISE,
    COMPARISONS,
    LOGICAL,
    SHIFTS,
    Binary,
    BinOp,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    PrimExpr,
    Select,
    Unary,
    UnOp,
    Var,
    as_expr,
    binary,
    cast,
    const_value,
    describe,
    is_const,
    literal,
    select,
    truth,
    unary,
)
from tilec.ir.intrinsics import INTRINSICS, Intrinsic, is_pure
from tilec.ir.linear import Linear, difference, fold_int, linear, to_expr
from tilec.ir.node import Node, NodeMeta, field
from tilec.ir.printer import script, to_text
from tilec.ir.span import caller_span, frame_span
from tilec.ir.stmt import (
    Alloc,
    Assert,
    Bind,
    Break,
    Continue,
    Evaluate,
    For,
    If,
    Launch,
    Module,
    Parallel,
    PrimFunc,
    Return,
    Seq,
    Stmt,
    Store,
    TileOp,
    While,
    seq,
)
from tilec.ir.structural import structural_equal, structural_hash, tokens
from tilec.ir.verify import verify
from tilec.ir.visitor import Mutator, free_vars, map_children, substitute, walk

__all__ = [name for name in dir() if not name.startswith("_")]
