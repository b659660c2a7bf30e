"""Benchmarks: commands for people, never part of the tests. What they measured is in `docs/`."""
