"""The front-end of OpenAI's Responses protocol. Empty, so that its options can be read without the web stack."""
