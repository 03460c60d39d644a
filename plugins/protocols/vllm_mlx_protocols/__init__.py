"""The built-in protocol front-ends, one package each."""
