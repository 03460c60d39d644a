"""The built-in tool-call and reasoning parsers. Plain Python over text: no MLX, no web stack, no tokenizer."""
