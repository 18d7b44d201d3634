"""Writes audio to a file while it is recorded; the file is playable at every moment."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol

from edgeapp.console import print_note
from edgeapp.live.timeline import LONG_GAP_S
from edgeapp.output_errors import check_output, free_name, output_errors
from pipelines import OptionError, OutputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pipelines.asr import Samples

__all__ = ["Recorder", "check_recording"]

_SAMPLE_RATE = 16_000  # Hz
_WRITE_SAMPLES = 8_000  # written at once: half a second
_MAX_WAV_BYTES = 2**32 - 4096  # sizes in the header have 32 bits
_MAX_WAV_HOURS = 37  # of mono

# RFC 9639, section 8.2: at byte 18 of a FLAC file are 20 bits of sample rate, 3 of channels - 1, 5
# of bits per sample - 1, and 36 of the number of samples.
_FLAC_COUNT_OFFSET, _FLAC_COUNT_BITS = 18, 36


def check_recording(path: Path) -> None:
    """Check the name of a recording before anything is opened.

    Raises:
        OptionError: It has another extension than .wav or .flac.
        OutputError: The file exists already (it may be an interrupted recording), or its folder
            cannot be written.
    """
    if path.suffix.lower() not in _WRITERS:
        raise OptionError(f"{path}: audio is kept as .wav or .flac, choose such a name")
    if path.exists():
        raise OutputError(f"{path} exists already: choose another name")
    check_output(path)


class Recorder:
    """Writes blocks at 16 kHz to a 16-bit .wav or .flac file; a context manager.

    Attributes:
        path: of the file that is being written.

    The file can be played while it grows. If the process is killed, less than the last second is
    missing. Writes are not synced to disk: a power failure loses what the operating system had
    not written yet.
    """

    def __init__(self, path: str | Path, channels: int = 1) -> None:
        """
        Args:
            path: a new file, whose extension gives the format.
            channels: 1 or 2.

        Raises:
            OptionError, OutputError: as check_recording, or it cannot be written.
        """
        check_recording(Path(path))
        self._channels, self._first_path = channels, Path(path)
        self._pending: list[Samples] = []
        self._pending_samples = 0
        self._failed = False  # a write failed
        self._open(self._first_path)

    def _open(self, path: Path) -> None:
        self.path = path
        with self._errors():
            self._file: IO[bytes] = path.open("xb")
            self._writer = _WRITERS[path.suffix.lower()](self._file, self._channels)

    def write(self, block: Samples) -> None:
        """Add float32 samples [n], or [n, channels], in -1…1; larger ones are clipped.

        Raises:
            OutputError: the file cannot be written.
        """
        self._pending.append(block)
        self._pending_samples += len(block)
        if self._pending_samples >= _WRITE_SAMPLES:
            self._flush()

    def skip(self, seconds: float) -> None:
        """Add silence. After a long gap go on in a new file instead, talk-2.wav after talk.wav.

        Raises:
            OutputError: a file cannot be written.
        """
        if seconds > LONG_GAP_S:
            self.close()
            self._open(free_name(self._first_path))
            print_note(f"the audio goes on in {self.path}")
            return
        import numpy as np

        left = round(seconds * _SAMPLE_RATE)
        while left > 0:
            count = min(left, _WRITE_SAMPLES)
            shape = (count, self._channels) if self._channels > 1 else count
            self.write(np.zeros(shape, np.float32))
            left -= count

    def close(self) -> None:
        """Write the remaining samples and close the file.

        Raises:
            OutputError: the file cannot be written.
        """
        if self._file.closed:
            return
        try:
            if not self._failed:
                self._flush()
        finally:
            # A failed write was reported already: a second error here would hide the first one.
            with suppress(OSError) if self._failed else self._errors(), self._file:
                self._writer.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _flush(self) -> None:
        if not self._pending_samples:
            return
        import numpy as np

        samples = np.concatenate(self._pending)
        self._pending, self._pending_samples = [], 0
        scaled = np.clip(np.round(samples * 32768.0), -32768, 32767).astype("<i2")
        with self._errors():
            self._writer.write(scaled)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with output_errors(self.path):
            try:
                yield
            except FileExistsError as error:
                raise OutputError(f"{self.path} exists already: choose another name") from error
            except OSError:
                self._failed = True
                raise


class _Writer(Protocol):
    def __init__(self, file: IO[bytes], channels: int) -> None: ...
    def write(self, samples: NDArray[np.int16]) -> None: ...
    def close(self) -> None: ...


class _Wav:
    def __init__(self, file: IO[bytes], channels: int) -> None:
        self._file, self._frame_bytes = file, 2 * channels
        self._wave = wave.Wave_write(file)
        self._wave.setparams((channels, 2, _SAMPLE_RATE, 0, "NONE", ""))
        self._wave.writeframes(b"")
        file.flush()

    def write(self, samples: NDArray[np.int16]) -> None:
        if self._frame_bytes * self._wave.tell() + samples.nbytes > _MAX_WAV_BYTES:
            hours = _MAX_WAV_HOURS * 2 // self._frame_bytes
            raise OSError(f"a .wav file holds no more than {hours} hours; .flac files do")
        # writeframes also updates the sizes in the header.
        self._wave.writeframes(samples.tobytes())
        self._file.flush()

    def close(self) -> None:
        self._wave.close()


class _Flac:
    def __init__(self, file: IO[bytes], channels: int) -> None:
        import av

        self._file, self._layout = file, "mono" if channels == 1 else "stereo"
        self._format = _SAMPLE_RATE << 8 | (channels - 1) << 5 | 15
        self._container: Any = av.open(file, "w", format="flac", options={"flush_packets": "1"})
        self._stream: Any = self._container.add_stream(
            "flac", rate=_SAMPLE_RATE, layout=self._layout
        )
        self._stream.format = "s16"
        self._container.start_encoding()
        self._samples = 0

    def write(self, samples: NDArray[np.int16]) -> None:
        from av import AudioFrame

        frame = AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout=self._layout)
        frame.sample_rate = _SAMPLE_RATE
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
            self._samples += packet.duration
        self._write_count()

    def close(self) -> None:
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def _write_count(self) -> None:
        """Update the number of samples in the header.

        libav writes it at the end only, but many players need it earlier.
        """
        end = self._file.tell()
        self._file.seek(_FLAC_COUNT_OFFSET)
        self._file.write((self._format << _FLAC_COUNT_BITS | self._samples).to_bytes(8))
        self._file.seek(end)
        self._file.flush()


_WRITERS: dict[str, type[_Writer]] = {".wav": _Wav, ".flac": _Flac}
