"""OpenAI's files and batches: many requests in one file, answered while nobody waits."""
