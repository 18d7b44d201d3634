"""The audio source of `edgeapp live`: a recording, or a microphone that is replaced when lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeapp.console import print_note
from edgeapp.live.timeline import elapsed_s
from pipelines import OutputError
from pipelines.errors import DeviceError

if TYPE_CHECKING:
    from edgeapp.live.recorder import Recorder
    from edgeapp.live.sources import JoinedSource, LiveSource, MicrophoneSource

__all__ = ["LiveCapture"]

_RETRY_S = 1.0  # between two attempts to open a microphone
_NOTE_S = 5.0  # between two notes while the models load


class LiveCapture:
    """Opens the recording or the microphone, and another microphone when that one is lost.

    Attributes:
        source: the source that is open now.
        began: the time of day at which the microphone was opened; None of a recording.
    """

    def __init__(
        self,
        stack: ExitStack,
        recording: Path | None,
        speed: float,
        device_names: Sequence[str] = (),
        channels: int = 1,
    ) -> None:
        """
        Args:
            stack: closes the microphone and the recorder.
            recording: a file to play; None: a microphone.
            speed: of the recording, relative to real time; 0: as fast as it is read.
            device_names: number or part of the name of the microphone, or of one for each channel;
                none: the default.
            channels: 1: those of the recording or the microphone are mixed; 2: its first two.

        Raises:
            AudioError: the recording cannot be decoded, or has too few channels.
            DeviceError: a microphone cannot be opened, or has too few channels.
        """
        self._stack, self._recording = stack, recording
        self._device_names, self._channels = device_names, channels
        self._microphone_stack = stack.enter_context(ExitStack())
        self._recorder: Recorder | None = None
        self._recorder_error: OutputError | None = None
        self._stopped = False
        self._microphone_names = ""
        self._began_s = 0.0
        self.began: datetime | None = None
        self.source: LiveSource
        # Opened before a model is loaded, so that errors are reported early.
        if recording is None:
            self._microphone, self._began_s = self._open_microphone()
            self.source = self._microphone
            self.began = datetime.now(UTC) - timedelta(seconds=elapsed_s() - self._began_s)
            print_note(f"recording {self._microphone_names} while the models load; Ctrl-C ends")
        else:
            from edgeapp.live.sources import FileSource
            from pipelines import load_audio

            samples = load_audio(recording)
            if channels > 1:
                parts = [load_audio(recording, channel=i) for i in range(channels)]
                samples = np.stack(parts, axis=1)
            self.source = FileSource(samples, speed)

    def record_to(self, path: Path) -> None:
        """Also write the audio to a file.

        Raises:
            OptionError: the file name does not end with .wav or .flac.
            OutputError: the file exists already or cannot be written.
        """
        from edgeapp.live.recorder import Recorder

        self._recorder = self._stack.enter_context(Recorder(path, self._channels))
        self.source = self._with_recorder(self.source)

    def now(self) -> datetime:
        """Return the time of day, of a clock that is not set during the session."""
        if self.began is None:
            return datetime.now(UTC)
        return self.began + timedelta(seconds=elapsed_s() - self._began_s)

    @property
    def is_recording(self) -> bool:
        """Whether the audio is also written to a file."""
        return self._recorder is not None

    def take_failure(self) -> OutputError | None:
        """Return why the audio is no longer written to the file, once."""
        error, self._recorder_error = self._recorder_error, None
        return error

    def _end_recording(self, error: OutputError) -> None:
        self._recorder, self._recorder_error = None, error

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Say while the models load how much of the microphone is kept, then that it is heard."""
        if self._recording is not None:
            yield
            return
        loaded = threading.Event()

        def note() -> None:
            while not loaded.wait(_NOTE_S) and not self._stopped:
                print_note(f"loading; {self.source.waiting_s:.0f} s kept")

        notes = threading.Thread(target=note, name="notes of loading", daemon=True)
        notes.start()
        try:
            yield
        finally:
            loaded.set()
            notes.join()
        self._announce()

    def _announce(self) -> None:
        if not self._stopped:
            print_note(f"listening to {self._microphone_names}; Ctrl-C ends")

    def stop(self) -> None:
        """End the audio. It may be called from a signal handler."""
        self._stopped = True
        self.source.stop()

    def reopen_microphone(self) -> LiveSource | None:
        """Wait until a microphone can be opened; None after `stop`."""
        print_note("waiting for a microphone; Ctrl-C ends")
        # PortAudio does not detect new devices while a stream is open.
        self._microphone_stack.close()
        lost_s = self._microphone.end_s
        while not self._stopped:
            try:
                self._microphone, _ = self._open_microphone(lost_s)
            except DeviceError:
                time.sleep(_RETRY_S)
            else:
                self.source = self._with_recorder(self._microphone)
                if self._stopped:  # meanwhile: `stop` may have ended only the source before it
                    self.source.stop()
                self._announce()
                return self.source
        return None

    def _open_microphone(
        self, lost_s: float | None = None
    ) -> tuple[MicrophoneSource | JoinedSource, float]:
        """Open the microphones.

        Args:
            lost_s: When others were lost that these replace, by `elapsed_s`.

        Returns:
            Their source, and when its audio begins.
        """
        from edgeapp.live.microphone import Microphone, find_device
        from edgeapp.live.sources import JoinedSource, MicrophoneSource

        names = self._device_names or (None,)
        devices = [find_device(int(name) if name and name.isdigit() else name) for name in names]
        channels = self._channels if len(devices) == 1 else 1
        with ExitStack() as opened:  # closes the first ones if another cannot be opened
            microphones = [
                opened.enter_context(Microphone(device, channels=channels)) for device in devices
            ]
            self._microphone_stack.push(opened.pop_all())
        began_s = microphones[0].began_s if lost_s is None else lost_s
        sources = [
            MicrophoneSource(microphone, channels, began_s, goes_on=lost_s is not None)
            for microphone in microphones
        ]
        self._microphone_names = " and ".join(device.name for device in devices)
        if len(sources) == 1:
            return sources[0], began_s
        return JoinedSource(*sources, since_s=began_s), began_s

    def _with_recorder(self, source: LiveSource) -> LiveSource:
        from edgeapp.live.sources import TeeSource

        if self._recorder is None:
            return source
        return TeeSource(source, self._recorder, self._end_recording)
