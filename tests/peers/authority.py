"""A throw-away certificate authority for clients that insist on TLS."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Authority:
    """Signs certificates; its own lies in ``root``."""

    folder: Path
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "throw-away")])
        self.root = self.folder / "root.pem"
        self.root.write_bytes(self._sign(self.name, self.key, x509.BasicConstraints(True, 0), None))

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        constraints: x509.BasicConstraints,
        host: str | None,
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        made = (
            x509.CertificateBuilder(self.name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(constraints, critical=True)
        )
        if host is not None:
            made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def file(self, host: str) -> Path:
        """A PEM file with a key and its certificate for ``host``."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        file = self.folder / f"{host}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + self._sign(name, key, x509.BasicConstraints(False, None), host)
        )
        return file

    def server(self, host: str) -> ssl.SSLContext:
        """What a server of that name needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file(host))
        return context

    def client(self) -> ssl.SSLContext:
        """What trusts this authority alone."""
        return ssl.create_default_context(cafile=str(self.root))
