"""Hook specifications: what a plugin may implement.

A plugin is any object, usually a module, that an entry point in the group ``tilec`` names. Name
the entry point like the target kind, so that only this plugin is loaded when the kind is asked
for::

    [project.entry-points.tilec]
    mychip = "tilec_mychip.plugin"

    # tilec_mychip/plugin.py
    from tilec.backend import hookimpl

    @hookimpl
    def tilec_backends():
        from tilec_mychip.backend import BACKEND
        return [BACKEND]

Importing the plugin module must not need a driver, a tool chain or a framework.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from tilec.backend.instruments import Instrument
from tilec.backend.manifest import BackendModule

PROJECT = "tilec"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def tilec_backends() -> Iterable[BackendModule]:  # type: ignore[empty-body]
    """Deliver the backends of this plugin.

    Called once per process, right after the plugin was imported. The manifests are validated and
    registered together: if one is refused, none of this plugin's is registered, the plugin is
    listed as broken, and everything else goes on.

    Returns:
        Manifests; a backend that cannot work on this machine is delivered all the same, and its
        execution backends say why they are unavailable.
    """


@hookspec
def tilec_instruments() -> Iterable[Instrument]:  # type: ignore[empty-body]
    """Observe compilations.

    Called for every compilation, on the plugins that are loaded by then.

    Returns:
        Fresh observers, which see every pass of this compilation; see `tilec.backend.Instrument`.
    """
