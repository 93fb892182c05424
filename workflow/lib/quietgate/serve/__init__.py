"""The leased server: launch, ownership, the gate, failure classes."""
