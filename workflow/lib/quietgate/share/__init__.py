"""Archives for reviewers: checksums, verification, comparison."""
