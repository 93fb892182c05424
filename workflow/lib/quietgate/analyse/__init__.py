"""From records to tables, and from tables to statistics."""
