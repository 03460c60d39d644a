"""Certificates: what is wrong with them is said before a model loads, not after."""

from __future__ import annotations

import ssl

from vllm_mlx_core.api import Settings, UsageError


def check_certificate(settings: Settings) -> None:
    """Raise UsageError, in one line, if the certificate and key that ``settings`` name cannot be served."""
    certificate, key = settings.ssl_certfile, settings.ssl_keyfile
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise UsageError("--ssl-certfile and --ssl-keyfile are given together or not at all.")
    for file in (certificate, key):
        try:
            file.open("rb").close()
        except OSError as error:
            raise UsageError(f"Cannot read {file}: {error.strerror or error}.") from error
    try:
        # Without a password of ours OpenSSL asks for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"The key in {key} does not belong to the certificate in {certificate}.") from error
        raise UsageError(
            f"{certificate} and {key} must be a certificate and its key in PEM form, without a password."
        ) from error
