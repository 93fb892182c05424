"""Readers of server logs, NCCL logs, traces, metrics and benchmark files; no state, no study."""
