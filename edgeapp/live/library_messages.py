"""Messages that sound libraries print to stderr: kept out of the captions."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
import threading

__all__ = ["hide_library_messages"]

# Of PortAudio, ALSA and JACK. What they tell is reported as an error of the microphone.
_HIDDEN = re.compile(
    rb"Expression '.*' failed in |ALSA lib |[Jj]ack ?\w*[ :]"
    rb"|Cannot (?:connect to server (?:socket|request channel)|use real-time |lock down )"
)

_LINE_BUFFERED, _BUFFER_BYTES = 1, 4096  # _IOLBF of GNU's stdio.h


def hide_library_messages() -> None:
    """Drop the known messages of sound libraries from now on; pass on all others.

    PortAudio cannot be told to be silent. C libraries print to the FILE that their variable
    `stderr` names, and this sets it to a pipe that a thread filters. File descriptor 2, to which
    Python and other programs write, stays as it is. Where C libraries have no such variable that
    can be set (all but GNU's), nothing changes.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return
    reader, writer = os.pipe()
    library.fdopen.restype = ctypes.c_void_p
    file = library.fdopen(writer, b"w")
    library.setvbuf(ctypes.c_void_p(file), None, _LINE_BUFFERED, ctypes.c_size_t(_BUFFER_BYTES))
    stderr = ctypes.c_void_p.in_dll(library, "stderr")
    before, stderr.value = stderr.value, file
    # Messages at the end of the process would wait for a thread that has stopped.
    atexit.register(setattr, stderr, "value", before)
    thread = threading.Thread(target=_filter, args=(reader,), name="library messages", daemon=True)
    thread.start()


def _filter(reader: int) -> None:
    with open(reader, "rb", buffering=0) as pipe:
        rest, hidden = b"", False
        while data := pipe.read(4096):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                # An empty line belongs to the message before it.
                hidden = _HIDDEN.match(line) is not None or (hidden and not line)
                if not hidden:
                    os.write(2, line + b"\n")
