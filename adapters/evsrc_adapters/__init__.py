"""Adapters for real SOC tools: one file per product, built on the public names of `evsrc` only.

No adapter ships yet. Write your own with `evsrc.tool` (see docs/how-to/write-an-adapter.md).
"""
