from __future__ import annotations

import ssl
import subprocess

import httpx
import pytest

from vllm_mlx_core.api import Settings, UsageError
from vllm_mlx_core.server import check_certificate


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A folder with two self-signed certificates for localhost, and one key with a password."""
    folder = tmp_path_factory.mktemp("certificates")
    for name, locked in (("one", ["-nodes"]), ("two", ["-nodes"]), ("locked", ["-passout", "pass:hush"])):
        arguments = [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ]
        files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"]
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(
            ["openssl", "req", "-x509", *arguments, *names, *locked, *files], check=True, capture_output=True
        )
    return folder


def pair(certificate, key):
    return Settings(ssl_certfile=certificate, ssl_keyfile=key)


def test_a_certificate_and_its_key_are_good_and_none_at_all_too(certificates):
    check_certificate(pair(certificates / "one.pem", certificates / "one.key"))
    check_certificate(Settings())


@pytest.mark.parametrize(
    ("certificate", "key", "reason"),
    [
        ("one.pem", None, "together"),
        (None, "one.key", "together"),
        ("one.pem", "none.key", "Cannot read .*none.key: No such file"),
        ("none.pem", "one.key", "Cannot read .*none.pem: No such file"),
        ("", "one.key", "Cannot read"),
        ("one.pem", "two.key", "does not belong"),
        ("one.key", "one.key", "PEM"),
        ("one.pem", "one.pem", "PEM"),
        ("locked.pem", "locked.key", "without a password"),
    ],
)
def test_what_cannot_be_served_is_one_line(certificates, certificate, key, reason):
    files = [None if name is None else certificates / name for name in (certificate, key)]
    with pytest.raises(UsageError, match=reason) as info:
        check_certificate(pair(*files))
    assert "\n" not in str(info.value)


def test_requests_are_answered_over_tls_and_plain_ones_are_not(serving, make_app, certificates):
    files = {"ssl_certfile": certificates / "one.pem", "ssl_keyfile": certificates / "one.key"}
    trust = ssl.create_default_context(cafile=str(files["ssl_certfile"]))
    with serving(make_app(), **files) as server:
        with httpx.Client(verify=trust, timeout=30) as client:
            answer = client.post(f"https://localhost:{server.port}/plain/whole", json={"text": "x"})
            assert answer.status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://localhost:{server.port}/health", timeout=30)
