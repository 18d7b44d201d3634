"""A TLS certificate for a home network: made once, and again when it no longer fits."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.server.access.addresses import lan_address
from edgeapp.server.access.hosts import machine_names
from pipelines import OutputError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, GeneralName

__all__ = ["OwnCertificate", "names_of_this_machine", "own_certificate"]

_LASTS = timedelta(days=397)  # browsers refuse certificates that last longer
_RENEWED_BEFORE = timedelta(days=30)


@dataclass(frozen=True)
class OwnCertificate:
    """A certificate that no authority has signed.

    Attributes:
        certfile: In PEM.
        keyfile: Its private key, in PEM, which only the user can read.
        fingerprint: SHA-256 of the certificate, "AB:CD:…", as browsers show it.
        made: Whether it was made now.
    """

    certfile: Path
    keyfile: Path
    fingerprint: str
    made: bool


def names_of_this_machine() -> tuple[str, ...]:
    """The names and addresses under which browsers open a page of this machine."""
    addresses = [lan_address(family) for family in (socket.AF_INET, socket.AF_INET6)]
    names = ["localhost", *machine_names(), "127.0.0.1", "::1", *filter(None, addresses)]
    return tuple(dict.fromkeys(each for each in names if _general_name(each) is not None))


def own_certificate(folder: Path, names: Sequence[str]) -> OwnCertificate:
    """The certificate in a folder. One that is missing, ends soon or lacks a name is made anew.

    Args:
        folder: Of the certificate and its key. It is created.
        names: Names and addresses of this machine.

    Raises:
        OutputError: The folder cannot be written.
    """
    certfile, keyfile = folder / "cert.pem", folder / "key.pem"
    try:
        kept = _read(certfile, keyfile)
        made = kept is None or not _fits(kept, names)
        certificate = _make(certfile, keyfile, names) if kept is None or made else kept
    except OSError as error:
        raise OutputError(
            f"the certificate cannot be stored in {folder}: {error.strerror}"
        ) from error
    from cryptography.hazmat.primitives.hashes import SHA256

    fingerprint = certificate.fingerprint(SHA256()).hex(":").upper()
    return OwnCertificate(certfile, keyfile, fingerprint, made)


def _read(certfile: Path, keyfile: Path) -> Certificate | None:
    """The stored certificate; None where it is missing or damaged, or has another key."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificate

    try:
        certificate = load_pem_x509_certificate(certfile.read_bytes())
        key = load_pem_private_key(keyfile.read_bytes(), None)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return certificate if certificate.public_key() == key.public_key() else None


def _fits(certificate: Certificate, names: Sequence[str]) -> bool:
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName

    if certificate.not_valid_after_utc - datetime.now(UTC) < _RENEWED_BEFORE:
        return False
    try:
        held = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return False
    return all(_general_name(name) in held for name in names)


def _make(certfile: Path, keyfile: Path, names: Sequence[str]) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "EdgeApp on this network")])
    now = datetime.now(UTC)
    general = [found for name in names if (found := _general_name(name)) is not None]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks of phones differ
        .not_valid_after(now + _LASTS - timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(general), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, SHA256())
    )
    certfile.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(keyfile, secret)
    _write(certfile, certificate.public_bytes(serialization.Encoding.PEM))
    return certificate


def _write(path: Path, content: bytes) -> None:
    """Replace a file by one that only the user can read."""
    whole = path.with_name(f"{path.name}.{os.getpid()}")
    whole.unlink(missing_ok=True)
    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    whole.replace(path)


def _general_name(name: str) -> GeneralName | None:
    """A name or an address for a certificate; None: it is neither, as a name with an underscore."""
    from cryptography.x509 import DNSName, IPAddress

    try:
        return IPAddress(ip_address(name))
    except ValueError:
        pass
    labels = name.split(".")
    valid = all(
        label and len(label) < 64 and label.isascii() and label.replace("-", "a").isalnum()
        for label in labels
    )
    return DNSName(name) if valid else None
