"""Damages bytes at random: bits, lengths, cuts, splices."""

from __future__ import annotations

from random import Random

__all__ = ["mutate"]

_HEAD = 512  # bytes in which headers are: half of the changes are there
_NUMBERS = (0, 1, -1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, -0x80000000,
            0x40000000, 0x7FFFFFFFFFFFFFFF, 1000, 10**6, 10**9)  # fmt: skip


def mutate(data: bytes, random: Random, other: bytes = b"") -> bytes:
    """A damaged copy.

    Args:
        data: At least one byte.
        random: Decides what is done where.
        other: Bytes that may be spliced in.
    """
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 5, 10, 40))):
        if not changed:
            break
        _CHANGES[random.randrange(len(_CHANGES))](changed, _place(changed, random), random, other)
    return bytes(changed)


def _place(data: bytearray, random: Random) -> int:
    return random.randrange(min(_HEAD, len(data)) if random.random() < 0.5 else len(data))


def _flip(data: bytearray, at: int, random: Random, other: bytes) -> None:
    data[at] ^= 1 << random.randrange(8)


def _byte(data: bytearray, at: int, random: Random, other: bytes) -> None:
    data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))


def _number(data: bytearray, at: int, random: Random, other: bytes) -> None:
    size = random.choice((2, 4, 8))
    value = random.choice(_NUMBERS) & (1 << 8 * size) - 1
    data[at : at + size] = value.to_bytes(size, random.choice(("big", "little")))


def _cut(data: bytearray, at: int, random: Random, other: bytes) -> None:
    if random.random() < 0.3:
        del data[at:]


def _leave_out(data: bytearray, at: int, random: Random, other: bytes) -> None:
    del data[at : at + random.choice((1, 2, 4, 16, 64, 1024))]


def _repeat(data: bytearray, at: int, random: Random, other: bytes) -> None:
    block = data[at : at + random.choice((1, 4, 64, 1024, 8192))]
    data[at:at] = block * random.choice((1, 2, 20))


def _insert(data: bytearray, at: int, random: Random, other: bytes) -> None:
    data[at:at] = random.randbytes(random.choice((1, 2, 4, 8, 100, 1000)))


def _blank(data: bytearray, at: int, random: Random, other: bytes) -> None:
    size = min(len(data) - at, random.choice((4, 16, 256, 4096)))
    data[at : at + size] = bytes([random.choice((0, 0xFF))]) * size


def _splice(data: bytearray, at: int, random: Random, other: bytes) -> None:
    if other:
        start = random.randrange(len(other))
        data[at:at] = other[start : start + random.choice((16, 256, 4096))]


_CHANGES = (_flip, _flip, _byte, _byte, _number, _number, _number, _cut, _leave_out, _repeat,
            _insert, _blank, _splice)  # fmt: skip
