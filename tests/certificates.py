"""Certificates for servers of tests, made with the machine's openssl."""

import shutil
import subprocess
from pathlib import Path

import pytest

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(directory: Path, *arguments: str) -> None:
    """Run it in a folder. Without openssl, which neither isvc-sync nor its users need, the test is skipped."""
    if shutil.which("openssl") is None:
        pytest.skip("makes certificates with openssl, which is not on this machine")
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def self_signed(directory: Path, name: str = "IP:127.0.0.1") -> Path:
    """Make a certificate that is its own CA (ca.pem) and its key (key.pem); return the folder."""
    subject = ("-subj", "/CN=x", "-addext", f"subjectAltName={name}", "-days", "2")
    openssl(directory, "req", "-x509", *NEW_KEY, "-keyout", "key.pem", *subject, "-out", "ca.pem")
    return directory
