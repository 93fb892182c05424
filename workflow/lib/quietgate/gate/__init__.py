"""The gate: nine proofs that a server is ready and configured as asked."""

from quietgate.gate.plan import GatePlan, plan_for
from quietgate.gate.run import run, server_lost

__all__ = ["GatePlan", "plan_for", "run", "server_lost"]
