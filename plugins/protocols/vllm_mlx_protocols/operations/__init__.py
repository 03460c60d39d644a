"""Routes for whoever runs the server. Empty, so that their options can be read without the web stack."""
