"""Audio kept while it is recorded, in a file that is whole at every moment."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol

from pipelines import OptionError, OutputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pipelines import Samples

__all__ = ["Recorder"]

_SAMPLE_RATE = 16_000  # Hz
_WRITE_EVERY = 8_000  # samples: half a second
_LARGEST_WAV = 2**32 - 4096  # bytes: its sizes have 32 bits, which lasts for 37 hours

# RFC 9639, 8.2: 18 bytes into a FLAC file stand 20 bits of sample rate, 3 of channels - 1, 5 of
# bits per sample - 1, and 36 that count the samples.
_FLAC_COUNT_AT, _FLAC_COUNT_BITS = 18, 36
_FLAC_FORMAT = _SAMPLE_RATE << 8 | 0 << 5 | 15


class Recorder:
    """Writes 16 kHz mono blocks to a 16-bit .wav or .flac file; a context manager.

    The file can be played while it grows. When the program is killed it lacks less than the last
    second. What is handed to the operating system is not forced to the disk: a power cut takes
    what the system had not written yet.
    Raises OptionError for another ending, OutputError when the file is there already (it may be
    a recording that broke off) or cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        writers: dict[str, type[_Writer]] = {".wav": _Wav, ".flac": _Flac}
        writer = writers.get(self.path.suffix.lower())
        if writer is None:
            raise OptionError(f"{self.path}: audio is kept as .wav or .flac, choose such a name")
        self._waiting: list[Samples] = []
        self._samples_waiting = 0
        self._broken = False
        with self._errors():
            self._file: IO[bytes] = self.path.open("xb")
            self._writer = writer(self._file)

    def write(self, block: Samples) -> None:
        """Add float32 samples, -1…1; what lies beyond is clipped. Raises OutputError."""
        self._waiting.append(block)
        self._samples_waiting += len(block)
        if self._samples_waiting >= _WRITE_EVERY:
            self._write_out()

    def close(self) -> None:
        """Write out the rest. Raises OutputError."""
        if self._file.closed:
            return
        try:
            if not self._broken:
                self._write_out()
        finally:
            # What broke has been said: its echo here would hide why the caller leaves.
            with suppress(OSError) if self._broken else self._errors(), self._file:
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

    def _write_out(self) -> None:
        if not self._samples_waiting:
            return
        import numpy as np

        samples = np.concatenate(self._waiting)
        self._waiting, self._samples_waiting = [], 0
        scaled = np.clip(np.round(samples * 32768.0), -32768, 32767).astype("<i2")
        with self._errors():
            self._writer.write(scaled)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError as error:
            raise OutputError(f"{self.path} is there already: choose another name") from error
        except OSError as error:
            self._broken = True
            raise OutputError(
                f"{self.path} cannot be written: {error.strerror or error}"
            ) from error


class _Writer(Protocol):
    def __init__(self, file: IO[bytes]) -> None: ...
    def write(self, samples: NDArray[np.int16]) -> None: ...
    def close(self) -> None: ...


class _Wav:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._wave = wave.Wave_write(file)
        self._wave.setparams((1, 2, _SAMPLE_RATE, 0, "NONE", ""))
        self._wave.writeframes(b"")
        file.flush()

    def write(self, samples: NDArray[np.int16]) -> None:
        if 2 * self._wave.tell() + samples.nbytes > _LARGEST_WAV:
            raise OSError("a .wav file holds no more than 37 hours; .flac files do")
        # The sizes in the header are brought up to date each time.
        self._wave.writeframes(samples.tobytes())
        self._file.flush()

    def close(self) -> None:
        self._wave.close()


class _Flac:
    def __init__(self, file: IO[bytes]) -> None:
        import av

        self._file = file
        self._container: Any = av.open(file, "w", format="flac", options={"flush_packets": "1"})
        self._stream: Any = self._container.add_stream("flac", rate=_SAMPLE_RATE, layout="mono")
        self._stream.format = "s16"
        self._container.start_encoding()
        self._samples = 0

    def write(self, samples: NDArray[np.int16]) -> None:
        from av import AudioFrame

        frame = AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = _SAMPLE_RATE
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
            self._samples += packet.duration
        self._count()

    def close(self) -> None:
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def _count(self) -> None:
        """libav counts the samples in the header at the end only; many players need it before."""
        end = self._file.tell()
        self._file.seek(_FLAC_COUNT_AT)
        self._file.write((_FLAC_FORMAT << _FLAC_COUNT_BITS | self._samples).to_bytes(8))
        self._file.seek(end)
        self._file.flush()
