"""Torch profiler traces of one or several ranks: where the GPU's time went (`ranks.read`)."""
