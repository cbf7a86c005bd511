"""Rewrites a kernel's syntax tree so that executing it traces the kernel.

Plain Python stays plain Python. Control flow, assignment to names, boolean operators, conditional
expressions and returns are routed through `tilec.language.runtime`, which decides by the values
it sees whether something happens now or is staged. Positions are kept, so that tracebacks and
spans point at the user's line. What cannot be staged is refused here with a location.
"""

from __future__ import annotations

import ast
from typing import Any

from tilec.diagnostics import Span, UnsupportedSyntaxError

RUNTIME_NAME = "__tilec_rt__"
_CHAINABLE = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_REFUSED: dict[type, tuple[str, str]] = {
    ast.ClassDef: ("a class definition", "define the class outside the kernel"),
    ast.AsyncFunctionDef: ("an async function", "kernels are synchronous"),
    ast.AsyncFor: ("async for", "use a plain for loop"),
    ast.AsyncWith: ("async with", "use a plain with statement"),
    ast.Await: ("await", "kernels are synchronous"),
    ast.Yield: ("yield", "kernels do not produce values one by one"),
    ast.YieldFrom: ("yield from", "kernels do not produce values one by one"),
}


def rewrite_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    filename: str,
    freevars: tuple[str, ...],
    kind: str,
) -> ast.Module:
    """A module holding an outer function (which owns the free variables) around the twin."""
    rewriter = Rewriter(filename)
    twin = rewriter.function(node, kind)
    names = [RUNTIME_NAME, *freevars]
    outer = ast.FunctionDef(
        name="__tilec_outer__",
        args=ast.arguments(
            posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[], vararg=None
        ),
        body=[
            *(ast.Assign([ast.Name(n, ast.Store())], ast.Constant(None)) for n in names),
            twin,
        ],
        decorator_list=[],
    )
    module = ast.Module([outer], [])
    for stmt in outer.body:
        ast.copy_location(stmt, node)
    ast.copy_location(outer, node)
    return ast.fix_missing_locations(module)


def _assigned(body: list[ast.stmt]) -> list[str]:
    """Names bound by statements in `body` (nested functions and comprehensions excluded)."""
    found: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.setdefault(node.name)
            return
        if isinstance(
            node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        ):
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id)
        for child in ast.iter_child_nodes(node):
            visit(child)

    for stmt in body:
        visit(stmt)
    return [name for name in found if not name.startswith("__tilec")]


def _target_names(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, (ast.Tuple, ast.List)):
        return [n for item in target.elts for n in _target_names(item)]
    if isinstance(target, ast.Starred):
        return _target_names(target.value)
    return []


class Rewriter(ast.NodeTransformer):
    """The statement and expression rules. One instance per function."""

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._counter = 0
        self._loops: list[str] = []
        self._kind = "kernel"
        self._params: set[str] = set()
        self._globals: set[str] = set()

    # helpers

    def _span(self, node: ast.AST) -> Span:
        line, col = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_col = getattr(node, "end_col_offset", None) or col + 1
        return Span(self._filename, line, col + 1, end_line, end_col + 1)

    def _refuse(self, node: ast.AST, what: str, hint: str) -> None:
        raise UnsupportedSyntaxError(
            f"{what} is not supported in a kernel", span=self._span(node), hint=hint
        )

    def _fresh(self, what: str) -> str:
        self._counter += 1
        return f"__tilec_{what}{self._counter}"

    @staticmethod
    def _load(name: str) -> ast.Name:
        return ast.Name(name, ast.Load())

    @staticmethod
    def _store(name: str) -> ast.Name:
        return ast.Name(name, ast.Store())

    def _rt(self, method: str, *args: ast.expr, **keywords: ast.expr) -> ast.Call:
        func = ast.Attribute(self._load(RUNTIME_NAME), method, ast.Load())
        return ast.Call(func, list(args), [ast.keyword(k, v) for k, v in keywords.items()])

    def _on(self, name: str, method: str, *args: ast.expr) -> ast.Call:
        return ast.Call(ast.Attribute(self._load(name), method, ast.Load()), list(args), [])

    @staticmethod
    def _lambda(body: ast.expr) -> ast.Lambda:
        args = ast.arguments(
            posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[], vararg=None
        )
        return ast.Lambda(args, body)

    def _peek(self, name: str) -> ast.Lambda:
        return self._lambda(self._load(name))

    def _at(self, new: Any, old: ast.AST) -> Any:
        """Give new nodes the position of the old one, nodes that have one keep theirs."""
        ast.copy_location(new, old)
        for child in ast.walk(new):
            if "lineno" in child._attributes and not hasattr(child, "lineno"):
                ast.copy_location(child, old)
        return new

    def _body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for stmt in statements:
            new = self.visit(stmt)
            if isinstance(new, list):
                result.extend(new)
            elif new is not None:
                result.append(new)
        return result or [ast.Pass()]

    # functions

    def function(self, node: Any, kind: str) -> ast.FunctionDef:
        """The twin of a function definition, without decorators and annotations."""
        if isinstance(node, ast.AsyncFunctionDef):
            self._refuse(node, "an async function", "kernels are synchronous")
        if node.args.posonlyargs and kind == "kernel":
            self._refuse(node.args.posonlyargs[0], "a positional-only parameter", "remove the `/`")
        if kind == "kernel" and (node.args.vararg or node.args.kwarg):
            self._refuse(
                node.args.vararg or node.args.kwarg,
                "a variable number of parameters",
                "name every tensor and scalar",
            )
        saved = self._kind, self._params, self._loops
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self._kind, self._params, self._loops = kind, {a.arg for a in every}, []
        body: list[ast.stmt] = [
            ast.Assign([self._store("__tilec_depth")], self._rt("enter")),
        ]
        if kind != "kernel":
            body += [
                ast.Assign(
                    [self._store(a.arg)],
                    self._rt("param", ast.Constant(a.arg), self._load(a.arg)),
                )
                for a in every
            ]
        body = [self._at(stmt, node) for stmt in body] + self._body(node.body)
        self._kind, self._params, self._loops = saved
        args = ast.arguments(
            posonlyargs=[ast.arg(a.arg) for a in node.args.posonlyargs],
            args=[ast.arg(a.arg) for a in node.args.args],
            vararg=node.args.vararg and ast.arg(node.args.vararg.arg),
            kwonlyargs=[ast.arg(a.arg) for a in node.args.kwonlyargs],
            kw_defaults=node.args.kw_defaults,
            kwarg=node.args.kwarg and ast.arg(node.args.kwarg.arg),
            defaults=node.args.defaults,
        )
        twin = ast.FunctionDef(name=node.name, args=args, body=body, decorator_list=[])
        return self._at(twin, node)  # type: ignore[no-any-return]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if node.decorator_list:  # the decorator sees to it
            return node
        return self.function(node, "helper")

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        node.body = self.visit(node.body)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        refused = _REFUSED.get(type(node))
        if refused is not None:
            self._refuse(node, *refused)
        return super().generic_visit(node)

    def visit_Return(self, node: ast.Return) -> Any:
        value = self.visit(node.value) if node.value is not None else ast.Constant(None)
        name = self._fresh("r")
        hold = ast.Assign([self._store(name)], value)
        test = self._rt(
            "return_", self._load(name), self._load("__tilec_depth"), ast.Constant(self._kind)
        )
        leave = ast.If(test, [ast.Return(self._load(name))], [])
        return [self._at(hold, node), self._at(leave, node)]

    # assignment

    def _bind(self, name: str, value: ast.expr, node: ast.AST) -> ast.stmt:
        call = self._rt("assign", ast.Constant(name), value, self._peek(name))
        return self._at(ast.Assign([self._store(name)], call), node)  # type: ignore[no-any-return]

    def visit_Assign(self, node: ast.Assign) -> Any:
        value = self.visit(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            return self._bind(node.targets[0].id, value, node)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            node.targets = [self.visit(node.targets[0])]
            node.value = value
            return node
        hold = self._fresh("v")
        several = any(isinstance(t, (ast.Tuple, ast.List)) for t in node.targets)
        held = self._rt("snapshot", value) if several or len(node.targets) > 1 else value
        result: list[ast.stmt] = [self._at(ast.Assign([self._store(hold)], held), node)]
        for target in node.targets:
            result += self._assign_to(target, self._load(hold), node)
        return result

    def _assign_to(self, target: ast.expr, value: ast.expr, node: ast.AST) -> list[ast.stmt]:
        if isinstance(target, ast.Name):
            return [self._bind(target.id, value, node)]
        if isinstance(target, (ast.Tuple, ast.List)):
            leaves: list[tuple[str, ast.expr]] = []
            pattern: list[ast.expr] = []
            for item in target.elts:
                starred = isinstance(item, ast.Starred)
                inner = item.value if isinstance(item, ast.Starred) else item
                temp = self._fresh("t")
                leaves.append((temp, inner))
                pattern.append(
                    ast.Starred(self._store(temp), ast.Store()) if starred else self._store(temp)
                )
            result: list[ast.stmt] = [
                self._at(ast.Assign([ast.Tuple(pattern, ast.Store())], value), node)
            ]
            for temp, inner in leaves:
                result += self._assign_to(inner, self._load(temp), node)
            return result
        if isinstance(target, ast.Attribute):
            self._refuse(
                target,
                "assignment to an attribute",
                "keep state in a local name or a buffer",
            )
        return [self._at(ast.Assign([self.visit(target)], value), node)]

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.ctx, ast.Store):
            self._refuse(
                node, "assignment to an attribute", "keep state in a local name or a buffer"
            )
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        target = node.target
        annotation = self.visit(node.annotation)
        if isinstance(target, ast.Name) and node.value is None:
            if target.id not in self._params:
                self._refuse(
                    node,
                    f"an annotation of `{target.id}` without a value",
                    "only parameters are annotated in the body, as in A: T.Tensor[[M], dtype]",
                )
            call = self._rt(
                "annotate_param", ast.Constant(target.id), annotation, self._load(target.id)
            )
            return self._at(ast.Assign([self._store(target.id)], call), node)
        if isinstance(target, ast.Name) and node.value is not None:
            value = self._rt(
                "annotated", ast.Constant(target.id), annotation, self.visit(node.value)
            )
            return self._bind(target.id, value, node)
        self._refuse(node, "an annotation on this target", "annotate names only")
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        value = self.visit(node.value)
        if isinstance(node.target, ast.Name):
            symbol = ast.Constant(type(node.op).__name__)
            call = self._rt("inplace", symbol, self._load(node.target.id), value)
            return self._bind(node.target.id, call, node)
        node.value = value
        node.target = self.visit(node.target)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        name = node.target.id
        call = self._rt("assign", ast.Constant(name), self.visit(node.value), self._peek(name))
        node.value = self._at(call, node)
        return node

    # control flow

    def _names_arg(self, names: list[str]) -> list[ast.keyword]:
        return [ast.keyword(n, self._peek(n)) for n in names]

    def _when_staged(self, token: str, method: str, names: list[str]) -> list[ast.stmt]:
        if not names:
            return []
        body: list[ast.stmt] = [
            ast.Assign([self._store(n)], self._on(token, method, ast.Constant(n), self._peek(n)))
            for n in names
        ]
        return [ast.If(ast.Attribute(self._load(token), "staged", ast.Load()), body, [])]

    def visit_If(self, node: ast.If) -> Any:
        names = _assigned([*node.body, *node.orelse])
        token = self._fresh("if")
        test = self.visit(node.test)
        make = self._rt("If", test)
        make.keywords = self._names_arg(names)
        flag = self._fresh("c")
        body = ast.If(self._load(flag), self._body(node.body), [])
        result: list[ast.stmt] = [
            ast.Assign([self._store(token)], make),
            ast.With([ast.withitem(self._on(token, "then"), self._store(flag))], [body]),
            *self._when_staged(token, "restore", names),
        ]
        if node.orelse:
            other = ast.If(self._load(flag), self._body(node.orelse), [])
            result.append(
                ast.With([ast.withitem(self._on(token, "orelse"), self._store(flag))], [other])
            )
        result += self._when_staged(token, "merge", names)
        return [self._at(stmt, node.test if n == 0 else node) for n, stmt in enumerate(result)]

    def visit_For(self, node: ast.For) -> Any:
        if node.orelse:
            self._refuse(node.orelse[0], "`for ... else`", "set a flag in a T.alloc_var instead")
        targets = _target_names(node.target)
        if not isinstance(node.target, (ast.Name, ast.Tuple, ast.List)):
            self._refuse(node.target, "this loop target", "loop over names")
        names = [n for n in _assigned(node.body) if n not in targets]
        token = self._fresh("for")
        source = node.iter
        if isinstance(source, ast.Call) and not any(
            isinstance(a, ast.Starred) for a in source.args
        ):
            call = self._rt("iterate", self.visit(source.func), *map(self.visit, source.args))
            call.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in source.keywords]
            iterable: ast.expr = self._at(call, source)
        else:
            iterable = self.visit(source)
        label = ast.Tuple([ast.Constant(n) for n in targets], ast.Load())
        make = self._rt("Loop", iterable, label)
        make.keywords = self._names_arg(names)
        self._loops.append(token)
        body = self._when_staged(token, "carry", names) + self._body(node.body)
        self._loops.pop()
        loop = ast.For(node.target, self._load(token), body, [])
        result: list[ast.stmt] = [
            self._at(ast.Assign([self._store(token)], make), source),
            self._at(loop, node),
            *(self._at(s, node) for s in self._when_staged(token, "after", [*names, *targets])),
        ]
        return result

    def visit_While(self, node: ast.While) -> Any:
        if node.orelse:
            self._refuse(node.orelse[0], "`while ... else`", "set a flag in a T.alloc_var instead")
        names = _assigned(node.body)
        tested = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
        token = self._fresh("while")
        forever = isinstance(node.test, ast.Constant) and node.test.value is True
        make = self._rt(
            "While",
            self._lambda(self.visit(node.test)),
            ast.Tuple([ast.Constant(n) for n in names if n in tested], ast.Load()),
            ast.Constant(forever),
        )
        make.keywords = self._names_arg(names)
        self._loops.append(token)
        body = self._when_staged(token, "carry", names) + self._body(node.body)
        self._loops.pop()
        loop = ast.For(self._store(self._fresh("_")), self._load(token), body, [])
        return [
            self._at(ast.Assign([self._store(token)], make), node.test),
            self._at(loop, node),
            *(self._at(s, node) for s in self._when_staged(token, "after", names)),
        ]

    def _jump(self, node: ast.stmt, method: str) -> Any:
        if not self._loops:
            return node
        test = self._on(self._loops[-1], method)
        return self._at(ast.If(test, [type(node)()], []), node)

    def visit_Break(self, node: ast.Break) -> Any:
        return self._jump(node, "break_")

    def visit_Continue(self, node: ast.Continue) -> Any:
        return self._jump(node, "continue_")

    def visit_With(self, node: ast.With) -> Any:
        for item in node.items:
            span_of = item.context_expr
            context = self.visit(item.context_expr)
            if item.optional_vars is not None:
                names = [ast.Constant(n) for n in _target_names(item.optional_vars)]
                unpacked = ast.Constant(not isinstance(item.optional_vars, ast.Name))
                context = self._at(
                    self._rt("named", context, ast.Tuple(list(names), ast.Load()), unpacked),
                    span_of,
                )
            item.context_expr = context
        node.body = self._body(node.body)
        return node

    def visit_Try(self, node: ast.Try) -> Any:
        node.body = self._body(node.body)
        for handler in node.handlers:
            handler.body = self._body(handler.body)
        node.orelse = self._body(node.orelse) if node.orelse else []
        node.finalbody = self._body(node.finalbody) if node.finalbody else []
        return node

    def visit_Match(self, node: ast.Match) -> Any:
        self._refuse(node, "match", "use if / elif")

    def visit_Assert(self, node: ast.Assert) -> Any:
        message = self.visit(node.msg) if node.msg is not None else ast.Constant("")
        call = self._rt("assert_", self.visit(node.test), self._lambda(message))
        return self._at(ast.Expr(call), node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Constant):
            return node
        value = self.visit(node.value)
        return self._at(ast.Expr(self._at(self._rt("effect", value), node.value)), node)

    # expressions

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        method = "and_" if isinstance(node.op, ast.And) else "or_"
        return self._at(self._rt(method, *(self._lambda(self.visit(v)) for v in node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self._at(self._rt("not_", self.visit(node.operand)), node)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return self._at(
            self._rt(
                "ifexp",
                self.visit(node.test),
                self._lambda(self.visit(node.body)),
                self._lambda(self.visit(node.orelse)),
            ),
            node,
        )

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1 or any(type(op) not in _CHAINABLE for op in node.ops):
            return self.generic_visit(node)
        args: list[ast.expr] = [self.visit(node.left)]
        for op, value in zip(node.ops, node.comparators, strict=True):
            args.append(ast.Constant(_CHAINABLE[type(op)]))
            args.append(self._lambda(self.visit(value)))
        return self._at(self._rt("chain", *args), node)
