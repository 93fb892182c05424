"""Launches that people have, in scripts, manifests, programs and pasted text, read as a study's config."""
