"""Small files whose headers announce what no recording has."""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["endless_wav", "flac", "flac_frame", "wav"]

RATE = 16_000


def _crc(data: bytes, polynomial: int, bits: int) -> int:
    register, top, mask = 0, 1 << (bits - 1), (1 << bits) - 1
    for byte in data:
        register ^= byte << (bits - 8)
        for _ in range(8):
            register = ((register << 1) ^ (polynomial if register & top else 0)) & mask
    return register


def flac_frame(number: int, rate: int | None = None, samples: int = 65_535) -> bytes:
    """A mono frame of one value, 13 bytes. rate: Hz, where it is not that of the file."""
    sizes = b"\x70" if rate is None else b"\x7d"
    head = b"\xff\xf8" + sizes + b"\x08" + bytes([number]) + struct.pack(">H", samples - 1)
    head += b"" if rate is None else struct.pack(">H", rate)
    body = head + bytes([_crc(head, 0x07, 8)]) + b"\x00" + struct.pack(">h", 1000)
    return body + struct.pack(">H", _crc(body, 0x8005, 16))


def flac(rate: int, frames: list[bytes], total: int = 65_535) -> bytes:
    """A FLAC file whose header announces `total` samples at `rate` Hz."""
    streaminfo = struct.pack(">HH", 65_535, 65_535) + bytes(6)
    streaminfo += ((rate << 44) | (15 << 36) | total).to_bytes(8, "big") + bytes(16)
    return b"fLaC\x80\x00\x00\x22" + streaminfo + b"".join(frames)


def wav(rate: int, channels: int, data: bytes, announced: int | None = None) -> bytes:
    """A 16-bit WAV file whose header announces `announced` bytes of samples."""
    size = len(data) if announced is None else announced
    align = 2 * channels & 0xFFFF
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * align & 0xFFFFFFFF, align, 16)
    riff = struct.pack("<I", min(36 + size, 0xFFFFFFFF))
    chunks = b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", size)
    return b"RIFF" + riff + b"WAVE" + chunks + data


def endless_wav(folder: Path) -> Path:
    """Over eight hours at 16 kHz, of which the disk holds a header and a hole."""
    path, size = folder / "endless.wav", 1 << 30
    path.write_bytes(wav(RATE, 1, b"", size))
    with path.open("r+b") as file:
        file.truncate(44 + size)
    return path
