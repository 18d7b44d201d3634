"""Opens pictures. They are hostile input: formats are listed, sizes bounded before decoding."""

from __future__ import annotations

from io import BytesIO
from os import PathLike
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from pipelines.errors import InputError
from pipelines.notices import ignore_warning, notice
from pipelines.reading.results import MAX_PIXELS

Picture = str | PathLike[str] | bytes | Image.Image
"""A path, the content of a file, or an image in memory."""

# Decoders that are well tested, of what cameras, scanners and browsers write.
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM")

_MOST_BYTES = 256 << 20  # of a file
_MOST_SIDE = 60_000  # pixels


def open_picture(picture: Picture, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """A picture in RGB, upright, on white where it is transparent. Of several pages the first.

    Args:
        picture: A path, the content of a file, or an image in memory.
        max_pixels: As in ReadOptions.

    Raises:
        InputError: It cannot be read, is of another format, damaged, or larger than the limits.
    """
    if isinstance(picture, Image.Image):
        _check_size(picture, "the picture", max_pixels)
        return _flattened(picture)
    name = "the picture" if isinstance(picture, bytes) else str(Path(picture))
    content = picture if isinstance(picture, bytes) else _read(Path(picture))
    if len(content) > _MOST_BYTES:
        raise InputError(f"{name} has more than {_MOST_BYTES >> 20} MB")
    try:
        ignore_warning("", Image.DecompressionBombWarning)  # the size is checked here
        with Image.open(BytesIO(content), formats=_FORMATS) as image:
            _check_size(image, name, max_pixels)
            pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
            if pages > 1:
                notice(f"{name} has {pages} pages; only the first is read")
            image.load()
            return _flattened(ImageOps.exif_transpose(image))
    except UnidentifiedImageError:
        known = ", ".join(_FORMATS)
        raise InputError(f"{name} is in no known format of pictures: {known}") from None
    except InputError:
        raise
    except Image.DecompressionBombError:
        raise InputError(f"{name} has more than {_millions(max_pixels)} million pixels") from None
    except MemoryError as error:
        raise InputError(f"{name} does not fit into memory") from error
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error …
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{name} is damaged: {lines[0]}") from error


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise InputError(f"{path} cannot be read: there is no such file")
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise InputError(
                f"{path} has {size >> 20} MB; pictures have {_MOST_BYTES >> 20} at most"
            )
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _check_size(image: Image.Image, name: str, max_pixels: int) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise InputError(f"{name} is empty")
    if width * height > max_pixels or max(width, height) > _MOST_SIDE:
        raise InputError(
            f"{name} has {width} × {height} pixels; {_millions(max_pixels)} million are read, and "
            f"{_MOST_SIDE} on a side"
        )


def _millions(pixels: int) -> str:
    return f"{pixels / 1e6:.3g}"


def _flattened(image: Image.Image) -> Image.Image:
    if image.mode in ("RGB", "L"):
        return image.convert("RGB")
    if image.mode.startswith("I") or image.mode == "F":  # 16 bits and more: to 8 by their range
        low, high = (float(value) for value in image.getextrema())  # type: ignore[arg-type]
        scale = 255 / (high - low) if high > low else 0
        image = image.convert("F").point(lambda value: (value - low) * scale)
        return image.convert("L").convert("RGB")
    layered = image.convert("RGBA")
    page = Image.new("RGBA", layered.size, "white")
    page.alpha_composite(layered)
    return page.convert("RGB")
