"""Built-in model families and the ways to find a model: local folders, GGUF files, a hub, the demonstration model."""
