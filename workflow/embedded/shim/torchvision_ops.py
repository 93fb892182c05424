"""torchvision's compiled operators, where its wheel does not fit this torch.

PyPI's torchvision is a CUDA build. Beside a CPU build of torch its library cannot be loaded; torchvision
takes that calmly, but its import then describes two operators that nothing has defined. They are
defined here, without an implementation: a language model never calls them.
"""

from importlib.util import find_spec
from pathlib import Path

import torch

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def define_missing() -> bool:
    """Define `nms` and `qnms` unless torchvision's own library loads; whether they were defined."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    library = Path(spec.origin).parent / "_C.so"
    try:
        torch.ops.load_library(library)
        return False
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", SCHEMA)
        return True
