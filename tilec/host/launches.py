"""How a generated host function calls device functions: the seam for backends with a runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from tilec import ir
from tilec.backend.c_family import NameTable
from tilec.host.printer import HostPrinter


class Passed(NamedTuple):
    """One argument of a device function.

    Attributes:
        node: a parameter buffer of the host function, or an expression.
        text: its value in C: the address of the first element, or a number.
        kind: its C type.
    """

    node: ir.Buffer | ir.Expr
    text: str
    kind: str


class LaunchSite(NamedTuple):
    """Where a call is printed.

    Attributes:
        out: takes the text.
        names: of the function; `fresh` makes more.
        fail: ``(condition, call)`` prints a test, and what to return if it holds.
        wide: prints an expression in 64 bits, whatever the types of its variables.
        tensors: C names of the ``const DLTensor*`` of buffer parameters.
        device: C text of the index of the device that holds the tensors; ``-1`` without tensors.
    """

    out: HostPrinter
    names: NameTable
    fail: Callable[[str, str], None]
    wide: Callable[[int | ir.Expr], str]
    tensors: Mapping[ir.Buffer, str]
    device: str


class DeviceCalls:
    """Device functions that are C functions of the same library.

    A kernel ``k`` is declared as ``int32_t k(<element>* ..., <scalar> ...)`` with ``k_messages``:
    it returns 0 or the 1-based position of the message of what failed. A backend with a runtime of
    its own overrides what is different there.

    Attributes:
        device_name: what messages call the device; DLPack's number where it is empty.
        alignment: by parameter, bytes to which its address must be aligned.
        reserved: C names that the text uses.
    """

    device_name: str = ""
    alignment: Mapping[str, int] = MappingProxyType({})
    reserved: ClassVar[Sequence[str]] = ()

    def __init__(self) -> None:
        self._declared: dict[str, str] = {}

    def symbols(self, kernel: str) -> tuple[str, ...]:
        """C names that belong to a kernel."""
        return kernel, f"{kernel}_messages"

    def support(self) -> str:
        """What comes before the functions; asked for after they are printed."""
        return "".join(self._declared.values())

    def begin(self, site: LaunchSite) -> None:
        """Print what comes once per function, behind the checks of its arguments."""

    def launch(self, site: LaunchSite, kernel: str, passed: Sequence[Passed]) -> None:
        """Print the call of one device function."""
        kinds = ", ".join(p.kind for p in passed) or "void"
        self._declared.setdefault(
            kernel,
            f"extern int32_t {kernel}({kinds});\nextern const char* const {kernel}_messages[];\n",
        )
        status = site.names.fresh("status")
        args = ", ".join(p.text for p in passed)
        site.out.line(f"const int32_t {status} = {kernel}({args});")
        site.fail(
            f"{status} != 0",
            f"tilec_kernel_failed(self_handle, kernel, {status}, {kernel}_messages)",
        )
