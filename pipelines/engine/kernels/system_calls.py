"""How threads sleep until a word in memory changes: the functions of the operating system.

Shared by the compiler (device/sync.py) and the loader: it imports neither Numba nor torch. Linux
has been tested; macOS and Windows have not. Their functions are those that C++'s
std::atomic::wait calls there.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SystemCalls:
    """The functions of one system.

    Attributes:
        functions: Their names, by the symbol in the kernels.
        library: Where they are; None for the libraries that every process has.
    """

    functions: dict[str, str]
    library: str | None = None

    def addresses(self) -> dict[str, int]:
        """The addresses of the functions in this process, by the symbol in the kernels.

        Raises:
            OSError: The library is not there.
            AttributeError: It lacks a function.
        """
        library = ctypes.CDLL(self.library)
        return {
            symbol: function_address(getattr(library, name))
            for symbol, name in self.functions.items()
        }


_SYSTEMS = {
    "linux": SystemCalls({"edgeapp_syscall": "syscall"}),
    "darwin": SystemCalls({"edgeapp_wait": "__ulock_wait", "edgeapp_wake": "__ulock_wake"}),
    "win32": SystemCalls(
        {"edgeapp_wait": "WaitOnAddress", "edgeapp_wake": "WakeByAddressAll"},
        "api-ms-win-core-synch-l1-2-0.dll",
    ),
}


def system_calls() -> SystemCalls | None:
    """Those of this machine; None where none are known, and kernels cannot be used."""
    return _SYSTEMS.get(sys.platform)


def function_address(function: Any) -> int:
    """The address of a function of a library that ctypes has loaded."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None, "a function that was found in a library has an address"
    return address
