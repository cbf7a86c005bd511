"""The parsed declarations that are in the repository are those of `tilec.host.abi`."""

from __future__ import annotations

from pathlib import Path

from tilec.host import abi


def test_parsed_declarations_are_current():
    """Write it again with ``python -m tilec.host.abi > tilec/host/_cffi_abi.py``."""
    path = Path(abi.__file__).with_name("_cffi_abi.py")
    assert path.read_text(encoding="utf-8") == abi.emit_module()
