"""What a pass is, and what it may know while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tilec.diagnostics import NO_SPAN, Span
from tilec.ir import map_statements
from tilec.transform.config import ConfigKey, PassConfigKey, check_config, lookup

if TYPE_CHECKING:
    from tilec.backend.lowering import LoweringTable
    from tilec.backend.target import Target
    from tilec.ir import Module, PrimFunc
    from tilec.transform.capabilities import Capabilities

__all__ = [
    "ANY_FORM",
    "ConfigKey",
    "FunctionPass",
    "Pass",
    "PassConfigKey",
    "PassContext",
    "Remark",
    "StatementPass",
    "module_pass",
]

ANY_FORM = "any"


class Remark(NamedTuple):
    """Something a pass decided that a user may want to know (``kernel.explain()``)."""

    origin: str
    message: str
    span: Span = NO_SPAN

    def __str__(self) -> str:
        place = f"{self.span}: " if self.span.known else ""
        return f"{place}{self.origin}: {self.message}"


class PassContext:
    """Configuration of one compilation, handed to every pass.

    Attributes:
        config: the given keys, validated; read through `get` or `flag`, which know the defaults.
        target: what is compiled for; None where a pass runs alone.
        capabilities: what that target can do.
        lowerings: op lowerings of the target, for the pass that lowers tile operations.
        extra: further facts by name, for a backend's own passes.
    """

    __slots__ = ("_keys", "_remarks", "capabilities", "config", "extra", "lowerings", "target")

    def __init__(
        self,
        config: Mapping[Any, object] | None = None,
        *,
        target: Target | None = None,
        capabilities: Capabilities | None = None,
        lowerings: LoweringTable | None = None,
        keys: Iterable[ConfigKey] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._keys = {key.name: key for key in keys}
        self._remarks: list[Remark] = []
        self.config: Mapping[str, object] = MappingProxyType(check_config(config, self._keys))
        self.target = target
        self.capabilities = capabilities
        self.lowerings = lowerings
        self.extra: Mapping[str, Any] = MappingProxyType(dict(extra or {}))

    def get(self, key: PassConfigKey | str, default: object = None) -> Any:
        """The value of a config key: as given, else `default`, else the key's own default.

        Raises:
            PassConfigError: nobody knows the key.
        """
        spec = lookup(key, self._keys)
        if spec.name in self.config:
            return self.config[spec.name]
        return spec.default if default is None else default

    def flag(self, key: PassConfigKey | str) -> bool:
        """The value of a boolean key."""
        return bool(self.get(key))

    def remark(self, origin: str, message: str, span: Span = NO_SPAN) -> None:
        """Record a decision, by the name of the pass that took it."""
        self._remarks.append(Remark(origin, message, span))

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What passes recorded so far."""
        return tuple(self._remarks)


class Pass(ABC):
    """A named step from module to module.

    Subclasses set the attributes and implement `run`; options are constructor arguments.

    Attributes:
        name: short, unique within a pipeline, such as ``plan_storage``.
        purpose: one line.
        needs: the IR form it takes (``tile``, ``thread``, ``split``) or ``any``.
        gives: the form it gives; empty for the one it took.
    """

    name: str
    purpose: str
    needs: str = ANY_FORM
    gives: str = ""

    @abstractmethod
    def run(self, module: Module, ctx: PassContext) -> Module:
        """Transform a module; the same object where nothing changes."""

    def applies(self, ctx: PassContext) -> bool:
        """Whether to run at all under this configuration and target."""
        del ctx
        return True

    def __call__(self, module: Module, ctx: PassContext | None = None) -> Module:
        """Run the pass alone, as tests and tools do."""
        return self.run(module, PassContext() if ctx is None else ctx)

    def __repr__(self) -> str:
        return f"<pass {self.name}>"


class FunctionPass(Pass):
    """A pass that looks at one function at a time."""

    @abstractmethod
    def run_function(self, func: PrimFunc, ctx: PassContext) -> PrimFunc:
        """Transform one function; the same object where nothing changes."""

    def run(self, module: Module, ctx: PassContext) -> Module:
        """Transform every function."""
        return module.map(lambda func: self.run_function(func, ctx))


class StatementPass(FunctionPass):
    """A pass that rewrites statements one by one, inner ones first."""

    @abstractmethod
    def statement(self, node: Any, ctx: PassContext) -> Any:
        """What becomes of a statement; the same object where nothing changes."""

    def run_function(self, func: PrimFunc, ctx: PassContext) -> PrimFunc:
        """Rewrite every statement of a function."""
        body = map_statements(func.body, lambda node: self.statement(node, ctx))
        return func if body is func.body else func.replace(body=body)


class _ModulePass(Pass):
    def __init__(
        self,
        fn: Callable[[Module, PassContext], Module],
        name: str,
        purpose: str,
        needs: str,
        gives: str,
    ) -> None:
        self._fn = fn
        self.name, self.purpose, self.needs, self.gives = name, purpose, needs, gives
        self.__doc__ = fn.__doc__

    def run(self, module: Module, ctx: PassContext) -> Module:
        return self._fn(module, ctx)


def module_pass(
    name: str, purpose: str, *, needs: str = ANY_FORM, gives: str = ""
) -> Callable[[Callable[[Module, PassContext], Module]], Pass]:
    """Make a pass from a function ``(module, ctx) -> module``."""

    def wrap(fn: Callable[[Module, PassContext], Module]) -> Pass:
        return _ModulePass(fn, name, purpose, needs, gives)

    return wrap
