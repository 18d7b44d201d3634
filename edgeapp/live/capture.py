"""What `edgeapp live` listens to: a recording, or a microphone and its successors."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.console import print_note
from pipelines import DeviceError

if TYPE_CHECKING:
    from edgeapp.live.recorder import Recorder
    from edgeapp.live.sources import AudioSource

__all__ = ["LiveCapture"]

_LOOK_FOR_DEVICE_S = 1.0


class LiveCapture:
    """The recording or the microphone; another microphone when that one is lost."""

    def __init__(
        self, stack: ExitStack, recording: Path | None, speed: float, device_name: str | None
    ) -> None:
        self._stack, self._recording, self._device_name = stack, recording, device_name
        self._open = stack.enter_context(ExitStack())  # the microphone
        self._recorder: Recorder | None = None
        self._stopped = False
        # Opened before any model is loaded, so that errors come soon.
        if recording is None:
            self.feed = self._microphone()
        else:
            from edgeapp.live.sources import FileSource
            from pipelines import load_audio

            self.feed = FileSource(load_audio(recording), speed)

    def keep(self, path: Path) -> None:
        """Write the audio to a file as well."""
        from edgeapp.live.recorder import Recorder

        self._recorder = self._stack.enter_context(Recorder(path))
        self.feed = self._recorded(self.feed)

    @property
    def kept(self) -> bool:
        """Whether the audio is written to a file as well."""
        return self._recorder is not None

    def stop(self) -> None:
        """No more audio is wanted."""
        self._stopped = True
        self.feed.stop()

    def another(self) -> AudioSource | None:
        """Wait for a microphone to come (back); None when that is not wanted any more."""
        print_note("waiting for a microphone; Ctrl-C ends")
        self._open.close()  # while a stream is open, PortAudio does not look for devices again
        while not self._stopped:
            try:
                self.feed = self._recorded(self._microphone())
            except DeviceError:
                time.sleep(_LOOK_FOR_DEVICE_S)
            else:
                return self.feed
        return None

    def _microphone(self) -> AudioSource:
        from edgeapp.live.microphone import Microphone, find_device
        from edgeapp.live.sources import MicrophoneSource

        name = self._device_name
        device = find_device(int(name) if name and name.isdigit() else name)
        microphone = self._open.enter_context(Microphone(device))
        print_note(f"listening to {device.name}; Ctrl-C ends")
        return MicrophoneSource(microphone)

    def _recorded(self, feed: AudioSource) -> AudioSource:
        from edgeapp.live.sources import RecordedSource

        return feed if self._recorder is None else RecordedSource(feed, self._recorder)
