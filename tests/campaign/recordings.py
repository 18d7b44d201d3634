"""Half a second of sound in as many containers and codecs as this PyAV can write."""

from __future__ import annotations

import io
from contextlib import suppress

import av
import numpy as np

__all__ = ["encoded_forms"]

_SECONDS = 0.5
# (container, codec, Hz): usual pairs, and each codec in a container that takes it.
_FORMS = (
    ("wav", "pcm_s16le", 16_000), ("wav", "pcm_u8", 8_000), ("wav", "pcm_s24le", 48_000),
    ("wav", "pcm_f32le", 44_100), ("wav", "pcm_f64le", 16_000), ("wav", "pcm_alaw", 8_000),
    ("wav", "pcm_mulaw", 8_000), ("wav", "adpcm_ms", 22_050), ("wav", "adpcm_ima_wav", 22_050),
    ("wav", "adpcm_yamaha", 22_050), ("wav", "g722", 16_000), ("wav", "g726", 8_000),
    ("wav", "libmp3lame", 44_100), ("wav", "ac3", 48_000), ("wav", "adpcm_swf", 22_050),
    ("w64", "pcm_s16le", 16_000), ("aiff", "pcm_s16be", 44_100), ("aiff", "pcm_f32be", 16_000),
    ("au", "pcm_s16be", 16_000), ("au", "pcm_mulaw", 8_000), ("caf", "pcm_s16le", 16_000),
    ("caf", "alac", 44_100), ("caf", "adpcm_ima_qt", 22_050), ("voc", "pcm_u8", 16_000),
    ("ircam", "pcm_s16le", 16_000), ("sox", "pcm_s32le", 16_000), ("mmf", "adpcm_yamaha", 22_050),
    ("ast", "pcm_s16be_planar", 16_000), ("adx", "adpcm_adx", 22_050), ("flac", "flac", 16_000),
    ("ogg", "vorbis", 44_100), ("ogg", "libopus", 48_000), ("oga", "libopus", 48_000),
    ("opus", "libopus", 48_000), ("mp3", "libmp3lame", 44_100), ("mp2", "mp2", 44_100),
    ("adts", "aac", 44_100), ("latm", "aac", 44_100), ("ac3", "ac3", 48_000),
    ("eac3", "eac3", 48_000), ("mp4", "aac", 44_100), ("mp4", "alac", 44_100),
    ("mp4", "libopus", 48_000), ("mp4", "libmp3lame", 44_100), ("ipod", "aac", 44_100),
    ("mov", "pcm_s16le", 16_000), ("mov", "pcm_s24be", 48_000), ("mov", "adpcm_ima_qt", 22_050),
    ("3gp", "libopencore_amrnb", 8_000), ("3gp", "aac", 44_100), ("ismv", "aac", 44_100),
    ("f4v", "aac", 44_100), ("flv", "aac", 44_100), ("flv", "libmp3lame", 44_100),
    ("flv", "nellymoser", 22_050), ("matroska", "pcm_s16le", 16_000), ("matroska", "aac", 44_100),
    ("matroska", "vorbis", 44_100), ("matroska", "tta", 44_100), ("matroska", "wavpack", 44_100),
    ("matroska", "eac3", 48_000), ("webm", "libopus", 48_000), ("webm", "vorbis", 44_100),
    ("avi", "pcm_s16le", 16_000), ("avi", "libmp3lame", 44_100), ("avi", "ac3", 48_000),
    ("mpegts", "mp2", 44_100), ("mpegts", "aac", 44_100), ("mpegts", "libopus", 48_000),
    ("mpeg", "mp2", 44_100), ("vob", "ac3", 48_000), ("nut", "pcm_s16le", 16_000),
    ("nut", "vorbis", 44_100), ("gxf", "pcm_s16le", 48_000), ("wtv", "mp2", 44_100),
    ("rm", "ac3", 48_000), ("swf", "libmp3lame", 44_100), ("amr", "libopencore_amrnb", 8_000),
    ("tta", "tta", 44_100), ("wv", "wavpack", 44_100), ("spdif", "ac3", 48_000),
    ("kvag", "adpcm_ima_ssi", 22_050), ("apm", "adpcm_ima_apm", 22_050),
    ("wsaud", "adpcm_ima_ws", 22_050), ("argo_asf", "adpcm_argo", 22_050),
)  # fmt: skip


def encoded_forms() -> dict[str, bytes]:
    """A recording in each form that can be written and read again, by "container-codec"."""
    forms = {}
    for container, codec, rate in _FORMS:
        for layout in ("stereo", "mono"):
            with suppress(av.FFmpegError, ValueError, LookupError, TypeError, NotImplementedError):
                content = _encoded(container, codec, rate, layout)
                if _has_audio(content):
                    forms[f"{container}-{codec}".replace("_", ".")] = content
                    break
    return forms


def _encoded(container: str, codec: str, rate: int, layout: str) -> bytes:
    av.logging.set_level(None)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        stream.codec_context.options = {"strict": "-2"}
        times = np.arange(int(_SECONDS * rate)) / rate
        tone = 0.3 * np.sin(2 * np.pi * 440 * times) + 0.05 * np.sin(2 * np.pi * 97 * times**2)
        channels = 2 if layout == "stereo" else 1
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(np.tile(tone.astype(np.float32), (channels, 1))), "fltp", layout
        )
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return buffer.getvalue()


def _has_audio(content: bytes) -> bool:
    with av.open(io.BytesIO(content)) as container:
        return any(True for _ in container.decode(audio=0))
