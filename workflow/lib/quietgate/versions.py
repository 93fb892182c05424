"""Versions of the layers whose changes cost server time.

Snakemake does not notice a changed module. Raise a number here when a change alters how a server is
launched, judged or measured: the cells concerned are then redone by the next run. The offline layers
(inspect, analyse, draw) need no number: a digest of their sources stands for them, redoing them is cheap.
"""

# How a server is launched and judged: every cell is launched and gated again.
SERVE = 1
# How the all-reduces of a cell are checked before it: where the check is on, every cell is launched again.
ALL_REDUCE = 1
# What the timed passes measure: every cell is benchmarked again.
MEASURE = 1
# What the profiler pass records: every cell is captured again.
CAPTURE = 1
