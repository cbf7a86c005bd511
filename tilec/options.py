"""All options of the compiler, and the only place that reads the environment.

Each option can be given as an environment variable (``TILEC_VERBOSE=1``), for a block
(``with options(verbose=True): ...``, per thread and per task) and, where an entry point has a
keyword of the same name, as that keyword. The innermost wins: keyword, block, variable, default.

    >>> from tilec.options import options
    >>> with options(num_threads=1):
    ...     options.num_threads
    1
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from tilec.diagnostics import OptionError, did_you_mean

T = TypeVar("T")
PREFIX = "TILEC_"

_overrides: ContextVar[Mapping[str, object]] = ContextVar(
    "tilec_options", default=MappingProxyType({})
)


class Option(Generic[T]):
    """One option; reading it as an attribute of `options` gives its current value.

    Attributes:
        name: attribute and keyword name.
        doc: one sentence for the reference page and ``tilec doctor``.
        expects: what is accepted, in words.
        variables: environment variables, most specific first.
    """

    name: str
    variables: tuple[str, ...]

    def __init__(
        self,
        doc: str,
        *,
        default: Callable[[], T],
        accept: Callable[[object], T],
        parse: Callable[[str], object],
        expects: str,
        also: tuple[str, ...] = (),
    ) -> None:
        self.doc = doc
        self.default = default
        self.accept = accept
        self.parse = parse
        self.expects = expects
        self._also = also

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.variables = (PREFIX + name.upper(), *self._also)

    @overload
    def __get__(self, instance: None, owner: type) -> Option[T]: ...
    @overload
    def __get__(self, instance: Options, owner: type) -> T: ...
    def __get__(self, instance: Options | None, owner: type) -> Option[T] | T:
        """The option itself on the class, its current value on the instance."""
        if instance is None:
            return self
        overrides = _overrides.get()
        if self.name in overrides:
            return overrides[self.name]  # type: ignore[return-value]
        for variable in self.variables:
            text = os.environ.get(variable)
            if text:
                return self._from_text(variable, text)
        return self.default()

    def __set__(self, instance: Options, value: T) -> None:
        raise AttributeError(f"use 'with options({self.name}=...)' to set an option")

    def check(self, value: object) -> T:
        """Validate a value given from Python.

        Raises:
            OptionError: wrong type or value.
        """
        try:
            return self.accept(value)
        except (TypeError, ValueError):
            raise OptionError(
                f"option {self.name}: expected {self.expects}, got {value!r}", hint=self.doc
            ) from None

    def source(self) -> str:
        """Where the current value comes from: ``block``, a variable's name or ``default``."""
        if self.name in _overrides.get():
            return "block"
        return next((v for v in self.variables if os.environ.get(v)), "default")

    def _from_text(self, variable: str, text: str) -> T:
        try:
            return self.accept(self.parse(text))
        except (TypeError, ValueError):
            raise OptionError(
                f"environment variable {variable}: expected {self.expects}, got {text!r}",
                hint=self.doc,
            ) from None


_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError(text)
    return word in _TRUE


def _accept_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _flag(doc: str, *, default: bool = False) -> Option[bool]:
    return Option(
        doc,
        default=lambda: default,
        accept=_accept_bool,
        parse=_parse_bool,
        expects="a bool (0 or 1 in the environment)",
    )


def _whole(doc: str, *, default: int, least: int) -> Option[int]:
    def accept(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(value)
        return value

    return Option(
        doc,
        default=lambda: default,
        accept=accept,
        parse=int,
        expects=f"a whole number of at least {least}",
    )


def _accept_path(value: object) -> Path:
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        return Path(os.fspath(value)).expanduser()
    raise TypeError(value)


def _folder(doc: str, default: Callable[[], Path | None]) -> Option[Any]:
    return Option(doc, default=default, accept=_accept_path, parse=str, expects="a folder path")


def _choice(doc: str, *values: str) -> Option[str]:
    def accept(value: object) -> str:
        if value not in values:
            raise ValueError(value)
        return str(value)

    return Option(
        doc,
        default=lambda: values[0],
        accept=accept,
        parse=str.strip,
        expects="one of " + ", ".join(map(repr, values)),
    )


def _accept_words(value: object) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if isinstance(value, str):
        return tuple(shlex.split(value))
    raise TypeError(value)


def _words(doc: str, *, also: tuple[str, ...] = ()) -> Option[tuple[str, ...]]:
    return Option(
        doc,
        default=tuple,
        accept=_accept_words,
        parse=shlex.split,
        expects="a string (split as a shell would) or a list of strings",
        also=also,
    )


def _parse_target(text: str) -> object:
    if text.lstrip().startswith("{"):
        import json  # noqa: PLC0415 - only for a dict in the environment

        return json.loads(text)
    return text.strip()


def _accept_target(value: object) -> Any:
    if value is None or (isinstance(value, str) and not value):
        raise ValueError(value)
    return value  # target spellings are judged by the registry, which knows the kinds


def _default_cache_dir() -> Path:
    import platformdirs  # noqa: PLC0415 - not needed to import tilec

    return Path(platformdirs.user_cache_path("tilec"))


def _accept_name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(value)
    return value


class Options:
    """Typed view of the current option values; calling it overrides some for a block."""

    cache = _flag("Keep on disk what later processes can reuse.", default=True)
    cache_dir: Option[Path] = _folder(
        "Folder of what is kept on disk; the platform's user cache folder by default.",
        _default_cache_dir,
    )
    verbose = _flag("Report what is compiled, with which tools, and how long it took.")
    verify = _flag(
        "Verify every pass: the IR keeps its rules, and on generated arguments it computes the "
        "same as before."
    )
    verify_steps = _whole(
        "Steps that the interpreter may take in one run when passes are verified; 0 means that "
        "nothing is executed.",
        default=400_000,
        least=0,
    )
    dump_dir: Option[Path | None] = _folder(
        "Write the IR after every pass, and the generated sources, into this folder.", lambda: None
    )
    profile_passes = _flag("Report the time that each pass takes.")
    num_threads = _whole(
        "Threads that a kernel running on the host may use; 0 means all available cores.",
        default=0,
        least=0,
    )
    target: Option[Any] = Option(
        "Target where none is given: 'auto', a kind, or a dict (JSON in the environment).",
        default=lambda: "auto",
        accept=_accept_target,
        parse=_parse_target,
        expects="a target kind or a dict with a 'kind'",
    )
    execution_backend = Option[str](
        "Execution backend where none is given; 'auto' takes the target's first usable one.",
        default=lambda: "auto",
        accept=_accept_name,
        parse=str.strip,
        expects="the name of an execution backend, or 'auto'",
    )
    cc = _words(
        "Host C compiler with its leading arguments; found on the PATH by default.", also=("CC",)
    )
    compile_timeout = _whole(
        "Seconds that one run of an external compiler may take; 0 means no limit.",
        default=600,
        least=0,
    )
    traceback = _choice(
        "'short' ends a kernel error's traceback at the kernel; 'full' shows the compiler too.",
        "short",
        "full",
    )
    disable_plugins = Option[tuple[str, ...]](
        "Plugins that are not loaded, by entry-point name.",
        default=tuple,
        accept=_accept_words,
        parse=lambda text: [name for name in text.replace(",", " ").split() if name],
        expects="a list of entry-point names, separated by commas in the environment",
    )

    @contextmanager
    def __call__(self, **values: object) -> Iterator[None]:
        """Override options for a block; None leaves an option as it is.

        Raises:
            OptionError: unknown name, or a value of the wrong type.
        """
        checked = dict(_overrides.get())
        for name, value in values.items():
            option = self.lookup(name)
            if value is not None:
                checked[name] = option.check(value)
        token = _overrides.set(checked)
        try:
            yield
        finally:
            _overrides.reset(token)

    def table(self) -> tuple[Option[Any], ...]:
        """All options in the order they are documented."""
        return tuple(v for v in vars(type(self)).values() if isinstance(v, Option))

    def lookup(self, name: str) -> Option[Any]:
        """The option called `name`.

        Raises:
            OptionError: there is none.
        """
        option = vars(type(self)).get(name)
        if not isinstance(option, Option):
            names = [o.name for o in self.table()]
            raise OptionError(f"there is no option {name!r}", hint=did_you_mean(name, names))
        return option

    def unknown_variables(self) -> tuple[str, ...]:
        """Environment variables that look like options of ours and are none."""
        known = {variable for option in self.table() for variable in option.variables}
        return tuple(sorted(v for v in os.environ if v.startswith(PREFIX) and v not in known))


options = Options()
