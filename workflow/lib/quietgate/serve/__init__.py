"""The leased server: launch, ownership, the gate, failure classes."""

# Raise when a change alters how a server is launched or judged: every cell is then launched again.
VERSION = 1
