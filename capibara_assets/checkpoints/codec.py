"""How a piece is stored: as it is, or compressed where that pays."""

from typing import Literal

import zstandard

from capibara_assets.errors import IntegrityError

Compression = Literal["zstd", "gzip", "none"]


def encode(piece: memoryview, dtype: str, compression: Compression) -> tuple[str, bytes | memoryview]:
    """(encoding, stored bytes); `raw` gives the piece itself."""
    if compression == "none":
        return "raw", piece
    packed = zstandard.ZstdCompressor(1).compress(piece)
    return ("zstd", packed) if len(packed) < 0.95 * len(piece) else ("raw", piece)


def decode(encoding: str, stored: memoryview, out: memoryview) -> None:
    """Fill `out`. Raises IntegrityError."""
    plain = stored if encoding == "raw" else zstandard.ZstdDecompressor().decompress(stored, len(out))
    if len(plain) != len(out):
        raise IntegrityError("another length")
    out[:] = plain
