"""Wrapping keys in Google Cloud KMS, which never leave the service (envelope encryption).

The service is called once when a store is created, rotated or opened, never for a tensor. Requests and answers carry
CRC32C checksums
(https://cloud.google.com/kms/docs/data-integrity-guidelines).
"""

import re
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

from capibara_assets.errors import InputError, IntegrityError

SCHEME = "gcp-kms://"
_RESOURCE = re.compile(r"projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+")
_TIMEOUT = 30.0  # seconds for one answer, retries of the client included


class KmsKey:
    """A symmetric key of Google Cloud KMS, named by its address."""

    kind: Literal["google-kms"] = "google-kms"

    def __init__(self, address: str, client: Callable[[], Any] | None = None) -> None:
        """A key by its address; the service is not called yet.

        Args:
            address: `gcp-kms://projects/P/locations/L/keyRings/R/cryptoKeys/K`; the scheme may be left out.
            client: makes the KeyManagementServiceClient; default: of the machine's own Google credentials.

        Raises:
            InputError: no such address.
        """
        self.resource = address.removeprefix(SCHEME)
        if not _RESOURCE.fullmatch(self.resource):
            raise InputError(
                f"{address!r} is no address of a KMS key: {SCHEME}projects/P/locations/L/keyRings/R/cryptoKeys/K, "
                "without a version"
            )
        self.key_id = sha256(self.resource.encode()).hexdigest()[:16]
        self.origin = f"{SCHEME}{self.resource}"
        self._make_client = client or _default_client

    def wrap(self, data_key: bytes, binding: bytes) -> bytes:
        """The data key encrypted by the service, with `binding` as associated data."""
        answer = self._ask(
            "encrypt",
            plaintext=data_key,
            additional_authenticated_data=binding,
            plaintext_crc32c=_crc32c(data_key),
            additional_authenticated_data_crc32c=_crc32c(binding),
        )
        if not (answer.verified_plaintext_crc32c and answer.verified_additional_authenticated_data_crc32c):
            raise IntegrityError(f"{self.origin}: the request was damaged on its way; try again")
        if answer.ciphertext_crc32c != _crc32c(answer.ciphertext):
            raise IntegrityError(f"{self.origin}: the answer was damaged on its way; try again")
        return bytes(answer.ciphertext)

    def unwrap(self, wrapped: bytes, binding: bytes) -> bytes:
        """The data key, decrypted by the service."""
        answer = self._ask(
            "decrypt",
            ciphertext=wrapped,
            additional_authenticated_data=binding,
            ciphertext_crc32c=_crc32c(wrapped),
            additional_authenticated_data_crc32c=_crc32c(binding),
        )
        if answer.plaintext_crc32c != _crc32c(answer.plaintext):
            raise IntegrityError(f"{self.origin}: the answer was damaged on its way; try again")
        return bytes(answer.plaintext)

    def __repr__(self) -> str:
        return f"KmsKey({self.resource})"

    @cached_property
    def _client(self) -> Any:
        return self._make_client()

    def _ask(self, method: str, **fields: Any) -> Any:
        from google.api_core.exceptions import BadRequest, GoogleAPIError
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import RequestException

        try:
            return getattr(self._client, method)(request={"name": self.resource, **fields}, timeout=_TIMEOUT)
        except (GoogleAPIError, RequestException) as error:
            if method == "decrypt" and isinstance(error, BadRequest) and _word(error) == "INVALID_ARGUMENT":
                raise IntegrityError(f"{self.origin} did not encrypt this: {error.message}") from error
            raise InputError(
                f"{self.origin} does not {method}: {error}; is the key enabled, and may this account use it "
                "(roles/cloudkms.cryptoKeyEncrypterDecrypter)?"
            ) from error
        except GoogleAuthError as error:
            raise InputError(
                f"{self.origin}: no Google credentials ({error}): run `gcloud auth application-default login`"
            ) from error


def _default_client() -> Any:
    try:
        from google.cloud.kms_v1 import KeyManagementServiceClient
    except ImportError as error:
        raise InputError("a Google KMS key needs google-cloud-kms: pip install 'capibara-assets[gcp]'") from error
    return KeyManagementServiceClient(transport="rest")


def _word(error: Any) -> str:
    """Google's status name of a REST error: HTTP 400 stands for several."""
    return str(error.response.json()["error"]["status"])


def _crc32c(data: bytes) -> int:
    import google_crc32c

    return int(google_crc32c.value(data))
