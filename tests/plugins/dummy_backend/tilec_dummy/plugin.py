"""The entry point; imports nothing heavy until it is asked."""

from __future__ import annotations

from collections.abc import Iterable

from tilec.backend import BackendModule, hookimpl


@hookimpl
def tilec_backends() -> Iterable[BackendModule]:
    """The one backend of this plugin."""
    from tilec_dummy.backend import BACKEND

    return [BACKEND]
