"""What is measured on a live server: prompts, passes, stage timer, profiler."""

# Raise when a change alters what is measured or how: every cell is then benchmarked again.
VERSION = 1
