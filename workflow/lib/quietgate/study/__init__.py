"""The study: config to cells, launches in run order, exact commands and digests."""

from quietgate.study.study import Cell, Launch, Study

__all__ = ["Cell", "Launch", "Study"]
