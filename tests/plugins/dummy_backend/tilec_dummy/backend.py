"""The manifest."""

from __future__ import annotations

from tilec.backend import (
    Attr,
    Availability,
    BackendModule,
    Capabilities,
    ConfigKey,
    DeviceCodegen,
    ExecutionBackendSpec,
    Target,
    TargetKind,
    ToolchainInfo,
)
from tilec_dummy.passes import LOWERINGS, PIPELINE
from tilec_dummy.printer import emit
from tilec_dummy.runtime import PythonKernel

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64")  # fmt: skip

NO_ATOMICS = "blocks run one after the other on plain arrays"
NO_NUMPY = "NumPy has no such function of one element"
UNSUPPORTED = {
    **dict.fromkeys(("atomic_add", "atomic_max", "atomic_min"), NO_ATOMICS),
    **dict.fromkeys(
        ("truncdiv", "pow", "fma", "trunc", "nearbyint", "round", "copysign", "fmod", "isfinite",
         "exp10", "log10", "log1p", "tan", "sinh", "cosh", "asin", "acos", "atan", "erf", "sigmoid",
         "atan2", "hypot", "reinterpret", "clamp"),
        NO_NUMPY,
    ),
}  # fmt: skip


def capabilities(target: Target) -> Capabilities:
    """One lane, NumPy's own dtypes, no atomics."""
    return Capabilities(
        max_threads=int(target.get("max_threads", 1024)),
        dtypes=frozenset(DTYPES),
        unsupported=UNSUPPORTED,
    )


def toolchain(target: Target) -> ToolchainInfo:
    """Python itself."""
    import platform

    version = platform.python_version()
    return ToolchainInfo(f"Python {version}", f"python-{version}")


BACKEND = BackendModule(
    name="dummy",
    target_kinds=(
        TargetKind(
            "dummy",
            doc="Kernels as Python over NumPy arrays.",
            schema={"max_threads": Attr((int,), "Threads of one block at most.")},
            detect=dict,
            priority=-10,  # never in the way of a real target
        ),
    ),
    pipelines={"dummy": PIPELINE},
    device_codegens={"dummy": DeviceCodegen("python", emit)},
    execution_backends=(
        ExecutionBackendSpec(
            "python",
            PythonKernel,
            available=lambda target: Availability(True),
            enable_host_codegen=False,
            doc="Runs the generated Python.",
        ),
    ),
    capabilities=capabilities,
    lowerings=LOWERINGS,
    config_keys=(ConfigKey("dummy.keep_loops", (bool,), False, "Keep loops of one trip."),),
    dialect="tilec_dummy.language",
    toolchain=toolchain,
    notices=lambda target: ["it is slow, and meant for tests"],
)
