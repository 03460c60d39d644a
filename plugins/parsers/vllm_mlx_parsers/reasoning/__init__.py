"""Reasoning parsers: one file per format."""
