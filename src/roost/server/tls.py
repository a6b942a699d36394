"""TLS: one context per process, whose certificate can be replaced while the process serves."""

from __future__ import annotations

import ssl

from roost.errors import Invalid
from roost.server.settings import Settings


def context(settings: Settings) -> ssl.SSLContext | None:
    """Return a context with the settings' certificate; None if they name none; `Invalid` if it cannot be loaded."""
    if settings.tls_cert is None:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 or later, Python's default
    _load(made, settings.tls_cert, settings.tls_key)
    return made


def replace(old: ssl.SSLContext | None, settings: Settings) -> None:
    """Use another certificate for new connections; `Invalid` if it cannot be loaded, and the old one stays."""
    if old is not None and settings.tls_cert is not None:
        context(settings)  # tested on a new context first: a certificate with a wrong key would be half loaded
        _load(old, settings.tls_cert, settings.tls_key)


def _load(into: ssl.SSLContext, certificate: str, key: str | None) -> None:
    files = certificate if key is None else f"{certificate} with {key}"
    try:
        into.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise Invalid(f"TLS: {files} is not a PEM certificate with its private key ({error.reason})") from error
    except OSError as error:
        raise Invalid(f"TLS: {files} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    raise Invalid("TLS: the private key is encrypted, and a server cannot ask for its password")
