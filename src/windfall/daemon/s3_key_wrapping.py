"""Keys for server-side encryption with aws:kms: wraps and unwraps the key of an object.

SeaweedFS makes a key for each object and asks a key service to wrap it, through the API of OpenBao's and Vault's
`transit` engine. Every key id exists and has a seal of its own (sealing.py); the encryption context is bound to the
wrapped key.
"""

from __future__ import annotations

import base64
import hmac
import json
from urllib.parse import unquote

from windfall.daemon.sealing import Seal

#: AWS's name for the key that is used when a request names none.
DEFAULT_KEY_ID = "alias/aws/s3"
_TRANSIT = "/v1/transit/"
_PREFIX = "vault:v1:"
_MOST_BYTES = 4096

Answer = tuple[int, dict[str, object]]


class KeyWrapping:
    """The key service; it returns values and knows no sockets."""

    def __init__(self, master: str, token: str) -> None:
        self._seal = Seal(master.encode())
        self._token = token.encode()

    def answer(self, path: str, token: str, body: bytes) -> Answer:
        """Answer one request of the transit engine's API."""
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self._token):
            return 403, {"errors": ["permission denied"]}
        kind, _, name = path.partition("?")[0].removeprefix(_TRANSIT).partition("/")
        key_id = unquote(name)
        if not path.startswith(_TRANSIT) or not key_id:
            return 404, {"errors": ["no handler for this path"]}
        if kind == "keys":
            return 200, {"data": {"name": key_id, "type": "aes256-gcm96"}}
        try:
            request = json.loads(body)
            context = str(request.get("context", "")).encode()
            if kind == "encrypt":
                plain = base64.b64decode(request["plaintext"], validate=True)
                return 200, {"data": {"ciphertext": self._wrapped(key_id, plain, context)}}
            if kind == "decrypt":
                plain = self._unwrapped(key_id, request["ciphertext"], context)
                return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}
        except (ValueError, KeyError, TypeError, AttributeError):
            return 400, {"errors": ["cannot decrypt: the key, its context or the request is not right"]}
        return 404, {"errors": ["no handler for this path"]}

    def _wrapped(self, key_id: str, plain: bytes, context: bytes) -> str:
        if len(plain) > _MOST_BYTES:
            raise ValueError
        return _PREFIX + base64.b64encode(self._seal.sealed(key_id, plain, context)).decode()

    def _unwrapped(self, key_id: str, text: str, context: bytes) -> bytes:
        if not text.startswith(_PREFIX):
            raise ValueError
        content = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        return self._seal.opened(key_id, content, context)
