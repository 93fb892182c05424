"""The launcher: what a process must find before SGLang is imported."""

import json
import os
import subprocess
import sys
import unittest

import torch
import torchvision_ops

from . import EMBEDDED

defined = torchvision_ops.define_missing()


class Launcher(unittest.TestCase):
    def test_torchvision_can_be_imported_beside_this_torch(self):
        import torchvision

        self.assertTrue(hasattr(torch.ops.torchvision, "nms"))
        # Where its own library loads, nothing is defined in its place.
        self.assertEqual(defined, not torchvision.extension._has_ops())

    def test_a_trial_prints_the_versions_and_takes_the_cpu_path(self):
        probe = "import os, sys; assert os.environ['SGLANG_USE_CPU_ENGINE'] == '1'; import sgl_kernel; "
        probe += "assert 'shim' in sgl_kernel.__file__; assert not os.environ['CUDA_VISIBLE_DEVICES']"
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
        run = [sys.executable, str(EMBEDDED / "serve_cpu.py"), "--trial", "sgl_kernel"]
        done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        versions = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(versions["sglang"], "0.5.23")
        as_spawned = f"import runpy; runpy.run_path({run[1]!r}, run_name='__mp_main__'); {probe}"
        done = subprocess.run(
            [sys.executable, "-c", as_spawned], env=env, capture_output=True, text=True, timeout=120
        )
        self.assertEqual(done.returncode, 0, done.stderr)
