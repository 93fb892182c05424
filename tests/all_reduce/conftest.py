from serve_lease.conftest import house
from study.conftest import base

__all__ = ["base", "house"]
