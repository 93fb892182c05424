"""The gate: nine proofs that a server is ready and configured as asked."""
