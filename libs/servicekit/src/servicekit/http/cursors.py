"""Cursors of paged lists, signed so that only this service can make them."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import sha256
from typing import Final

MAC_BYTES: Final = 16
SECRET_BYTES_MIN: Final = 16


class BadCursor(ValueError):
    """A cursor that this service did not make, or made for another query."""

    def __init__(self) -> None:
        super().__init__("the cursor does not belong to this query; begin again without one")


class Cursors:
    """Makes and reads cursors. They are signed, not secret: they hold a position that the caller has seen.

    Args:
        secret: At least 16 bytes, the same in all replicas of a service; otherwise a cursor is valid in one of them only.

    Raises:
        ValueError: The secret is too short.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < SECRET_BYTES_MIN:
            raise ValueError(f"a secret for cursors needs at least {SECRET_BYTES_MIN} bytes")
        self._secret = secret

    def seal(self, query: str, position: str) -> str:
        """Return a cursor for a position that is valid for this query only."""
        text = position.encode()
        return urlsafe_b64encode(self._mac(query, text) + text).rstrip(b"=").decode()

    def open(self, query: str, cursor: str) -> str:
        """Return the position in a cursor.

        Raises:
            BadCursor: The cursor is forged, damaged, or of another query.
        """
        if not cursor.isascii():
            raise BadCursor
        try:
            data = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        except Base64Error:
            raise BadCursor from None
        mac, text = data[:MAC_BYTES], data[MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(query, text)):
            raise BadCursor
        return text.decode()

    def _mac(self, query: str, text: bytes) -> bytes:
        encoded = query.encode()
        framed = len(encoded).to_bytes(4, "big") + encoded + text
        return hmac.digest(self._secret, framed, sha256)[:MAC_BYTES]
