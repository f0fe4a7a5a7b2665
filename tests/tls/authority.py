"""Certificates made for one test: an authority of its own, and PEM files in a folder."""

import subprocess
from pathlib import Path

import trustme


def write_pair(folder: Path, name: str, authority: trustme.CA, *hosts: str, both: bool = False) -> tuple[Path, Path]:
    """A certificate for `hosts` with its issuers, and its key: two files, or one twice with `both`."""
    issued = authority.issue_cert(*(hosts or ("localhost",)))
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    key = issued.private_key_pem.bytes()
    cert_file, key_file = folder / f"{name}.pem", folder / (f"{name}.pem" if both else f"{name}-key.pem")
    key_file.write_bytes(key)
    cert_file.write_bytes(key + chain if both else chain)
    return cert_file, key_file


def write_authority(folder: Path, name: str, *authorities: trustme.CA) -> Path:
    path = folder / f"{name}.pem"
    path.write_bytes(b"".join(one.cert_pem.bytes() for one in authorities))
    return path


def write_locked_key(folder: Path, name: str, key_file: Path) -> Path:
    """The same key under a passphrase."""
    path = folder / f"{name}.pem"
    command = ["openssl", "pkey", "-in", str(key_file), "-aes256", "-passout", "pass:secret", "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path
