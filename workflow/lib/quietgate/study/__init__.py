"""The study: config to cells, launches in run order, exact commands and digests."""

from quietgate.study.cells import Cell, Launch
from quietgate.study.study import Study

__all__ = ["Cell", "Launch", "Study"]
