"""Google Cloud KMS as its REST reference describes `cryptoKeys.encrypt` and `decrypt`, on a local port.

https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings.cryptoKeys/encrypt
"""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import google_crc32c
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.auth.credentials import AnonymousCredentials

from capibara_assets.checkpoints.encryption.kms import KmsKey
from capibara_assets_tests.served import QuietHandler, served


class FakeKms:
    """One service: its keys by resource name, what it was asked, and how it misbehaves.

    Attributes:
        fault: "" or one of `wrong checksum`, `unverified`, or an HTTP status with Google's word for it.
    """

    def __init__(self, *names: str) -> None:
        self.keys = {name: AESGCM(os.urandom(32)) for name in names}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.fault = ""
        self.port = 0

    def key(self, name: str) -> KmsKey:
        """A key of this service."""
        return KmsKey(f"gcp-kms://{name}", self._client)

    def answer(self, name: str, method: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append((method, request))
        if self.fault[:1].isdigit():
            return _error(int(self.fault[:3]), self.fault[4:], "as the test asked")
        if name not in self.keys:
            return _error(404, "NOT_FOUND", f"CryptoKey {name} not found.")
        aad = base64.b64decode(request.get("additionalAuthenticatedData", ""))
        content = base64.b64decode(request["plaintext" if method == "encrypt" else "ciphertext"])
        for field, data in (("additionalAuthenticatedDataCrc32c", aad), (_crc_field(method), content)):
            if request[field] != str(google_crc32c.value(data)):
                return _error(400, "INVALID_ARGUMENT", f"The checksum in field {field} did not match.")
        wrong = int(self.fault == "wrong checksum")
        if method == "encrypt":
            nonce = os.urandom(12)
            sealed = nonce + self.keys[name].encrypt(nonce, content, aad)
            return 200, {
                "name": f"{name}/cryptoKeyVersions/1",
                "ciphertext": base64.b64encode(sealed).decode(),
                "ciphertextCrc32c": str(google_crc32c.value(sealed) ^ wrong),
                "verifiedPlaintextCrc32c": self.fault != "unverified",
                "verifiedAdditionalAuthenticatedDataCrc32c": True,
                "protectionLevel": "SOFTWARE",
            }
        try:
            plain = self.keys[name].decrypt(content[:12], content[12:], aad)
        except InvalidTag:
            return _error(400, "INVALID_ARGUMENT", "Decryption failed: the ciphertext is invalid.")
        return 200, {
            "plaintext": base64.b64encode(plain).decode(),
            "plaintextCrc32c": str(google_crc32c.value(plain) ^ wrong),
            "usedPrimary": True,
            "protectionLevel": "SOFTWARE",
        }

    def _client(self) -> Any:
        from google.cloud.kms_v1 import KeyManagementServiceClient
        from google.cloud.kms_v1.services.key_management_service.transports.rest import (
            KeyManagementServiceRestTransport,
        )

        return KeyManagementServiceClient(
            transport=KeyManagementServiceRestTransport(
                host=f"localhost:{self.port}", credentials=AnonymousCredentials(), url_scheme="http"
            )
        )


@contextmanager
def serving(*names: str) -> Iterator[FakeKms]:
    """A service with these keys, until the block ends."""
    service = FakeKms(*names)

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name, _, method = self.path.removeprefix("/v1/").partition("?")[0].rpartition(":")
            self.send(*service.answer(name, method, body))

    with served(Handler, "localhost") as server:
        service.port = server.server_port
        yield service


def _crc_field(method: str) -> str:
    return "plaintextCrc32c" if method == "encrypt" else "ciphertextCrc32c"


def _error(status: int, word: str, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"code": status, "message": message, "status": word}}
