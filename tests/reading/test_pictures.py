"""Pictures of all kinds are opened, hostile ones refused with one line."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from pipelines.errors import InputError
from pipelines.reading.pictures import open_picture


def content_of(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header)) + b"IHDR" + header
    end = struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return b"\x89PNG\r\n\x1a\n" + chunk + end + struct.pack(">I", 0) + b"IDAT" + b"\0" * 4


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM"])
def test_known_formats(format: str) -> None:
    image = open_picture(content_of(Image.new("RGB", (40, 20), "red"), format))
    assert (image.mode, image.size) == ("RGB", (40, 20))
    red, green, blue = image.getpixel((5, 5))
    assert red > 240
    assert max(green, blue) < 20


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "I", "F"])
def test_all_modes_become_rgb(mode: str) -> None:
    assert open_picture(Image.new(mode, (9, 5))).mode == "RGB"


def test_transparent_is_white_and_turned_pictures_stand_upright() -> None:
    clear = content_of(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG")
    assert open_picture(clear).getpixel((0, 0)) == (255, 255, 255)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = content_of(Image.new("RGB", (40, 20)), "JPEG", exif=exif)
    assert open_picture(turned).size == (20, 40)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "in no known format of pictures"),
        (b"%PDF-1.7 hello", "in no known format of pictures"),
        (content_of(Image.new("RGB", (9, 9)), "ICO"), "in no known format of pictures"),
        (content_of(Image.new("RGB", (90, 90), "red"), "JPEG")[:300], "is damaged"),
        (png_that_claims(50_000, 50_000), "million pixels"),
        (png_that_claims(11_000, 11_000), "million are read"),
        (png_that_claims(70_000, 1), "on a side"),
        (png_that_claims(0, 5), "is"),
    ],
    ids=["empty", "pdf", "other", "cut", "bomb", "large", "long", "no width"],
)
def test_what_is_no_picture_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as raised:
        open_picture(content)
    assert "\n" not in str(raised.value)
    (tmp_path / "page.png").write_bytes(content)
    with pytest.raises(InputError, match=r"page\.png"):
        open_picture(tmp_path / "page.png")


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.png"):
        with pytest.raises(InputError, match="there is no such file"):
            open_picture(path)
