"""SGLang's server on a CPU-only PyTorch: `python serve_cpu.py <any flags of sglang.launch_server>`.

SGLang itself is unpatched. Its CPU path imports `sgl_kernel`, whose CPU build is not on PyPI; the
stand-in in shim/sgl_kernel takes its place. SGLang spawns its scheduler and detokenizer, and Python
runs this file again in each of them (as `__mp_main__`), so what stands outside `main` reaches them too.
"""

import gc
import json
import os
import runpy
import sys
from importlib import import_module, metadata
from pathlib import Path

# Importing SGLang makes millions of objects that all stay: collecting among them takes 2 s of 9 per process.
gc.set_threshold(200_000, 50, 1_000)

# Read when `sglang.srt.utils` is imported: take the CPU path even where the processor has no AMX.
os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
# Beside a GPU, a CUDA build of torch would make SGLang take the CUDA path for half of its modules.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, str(Path(__file__).resolve().parent / "shim"))

import torchvision_ops

torchvision_ops.define_missing()


def trial(modules: list[str]) -> None:
    """Import `modules` as a server would and print the versions: proof that an environment works."""
    for module in modules:
        import_module(module)
    print(json.dumps({name: metadata.version(name) for name in ("sglang", "torch", "transformers")}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trial"]:
        trial(sys.argv[2:])
    else:
        runpy.run_module("sglang.launch_server", run_name="__main__")
