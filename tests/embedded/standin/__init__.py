"""Checks that need torch: run by the embedded environment's Python, see ../test_embedded.py."""

import sys
from pathlib import Path

EMBEDDED = Path(__file__).resolve().parents[3] / "workflow" / "embedded"
sys.path[:0] = [str(EMBEDDED), str(EMBEDDED / "shim")]
