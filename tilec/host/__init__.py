"""The packed host ABI: generated stubs that check arguments, and calls into them from Python."""

from tilec.host.abi import host_symbol
from tilec.host.callable import HostCallable
from tilec.host.stub import binding_plan, generate_host_source

__all__ = ["HostCallable", "binding_plan", "generate_host_source", "host_symbol"]
