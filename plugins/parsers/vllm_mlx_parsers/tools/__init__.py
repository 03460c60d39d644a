"""Tool-call parsers: one file per format."""
