"""The built-in cache policies: which states of past prompts are kept."""
