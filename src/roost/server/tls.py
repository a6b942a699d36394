"""TLS: a context per process, whose certificate can be replaced while it serves."""

from __future__ import annotations

import ssl

from roost.errors import Invalid
from roost.server.settings import Settings


def context(settings: Settings) -> ssl.SSLContext | None:
    """Return a context with the certificate of the settings, None where they have none; `Invalid` says why not."""
    if settings.tls_cert is None:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # with TLS 1.2 as its least
    _load(made, settings.tls_cert, settings.tls_key)
    return made


def replace(old: ssl.SSLContext | None, settings: Settings) -> None:
    """Give the connections to come another certificate; `Invalid`, and the old one stays, where it is no good."""
    if old is not None and settings.tls_cert is not None:
        context(settings)  # a certificate without its key would be half loaded
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
    raise Invalid("TLS: the private key is encrypted, and a server has nobody to ask for its password")
