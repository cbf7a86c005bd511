"""The passes of the CUDA backend, in order."""

from __future__ import annotations

from tilec.backend import PassPipeline, Stage
from tilec.simt.stages import stages
from tilec_cuda.target import note_target
from tilec_cuda.tensor_maps import MakeTensorMaps

PIPELINE = PassPipeline(
    "cuda",
    (
        Stage("target", (note_target,)),
        *stages(),
        Stage("descriptors", (MakeTensorMaps(),)),
    ),
)
