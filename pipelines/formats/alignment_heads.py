"""The cross-attention heads that follow the speech, of each published Whisper model.

From openai-whisper's __init__.py, where they are compressed; a checkpoint does not hold them.
"""

from __future__ import annotations

import re

# Name → layer.head of each.
_HEADS = {
    "tiny.en": """
        1.0 2.0 2.5 3.0 3.1 3.2 3.3 3.4
    """,
    "tiny": """
        2.2 3.0 3.2 3.3 3.4 3.5
    """,
    "base.en": """
        3.3 4.7 5.1 5.5 5.7
    """,
    "base": """
        3.1 4.2 4.3 4.7 5.1 5.2 5.4 5.6
    """,
    "small.en": """
        6.6 7.0 7.3 7.8 8.2 8.5 8.7 9.0 9.4 9.8 9.10 10.0 10.1 10.2
        10.3 10.6 10.11 11.2 11.4
    """,
    "small": """
        5.3 5.9 8.0 8.4 8.7 8.8 9.0 9.7 9.9 10.5
    """,
    "medium.en": """
        11.4 14.1 14.12 14.14 15.4 16.0 16.4 16.9 17.12 17.14 18.7 18.10 18.15 20.0
        20.3 20.9 20.14 21.12
    """,
    "medium": """
        13.15 15.4 15.15 16.1 20.0 23.4
    """,
    "large-v1": """
        9.19 11.2 11.4 11.17 22.7 22.11 22.17 23.2 23.15
    """,
    "large-v2": """
        10.12 13.17 16.11 16.12 16.13 17.15 17.16 18.4 18.11 18.19 19.11 21.2 21.3 22.3
        22.9 22.12 23.5 23.7 23.13 25.5 26.1 26.12 27.15
    """,
    "large-v3": """
        7.0 10.17 12.18 13.12 16.1 17.14 19.11 21.4 24.1 25.6
    """,
    "large-v3-turbo": """
        2.4 2.11 3.3 3.6 3.11 3.14
    """,
}
_SAME = {"large": "large-v3", "turbo": "large-v3-turbo"}

# What programs put around the name of a model in that of its file or folder.
_AROUND = re.compile(
    r"^(ggml-|faster-|whisper-)*|(-q\d(_\d|_k)?|\.(bin|pt|gguf)|-ct2|-f16|-float16)+$"
)


def known_alignment_heads(name: str) -> list[list[int]] | None:
    """The heads of a published model.

    Args:
        name: Of its file or folder, such as "ggml-base-q5_1.bin".

    Returns:
        [layer, head] pairs; None for an unknown model.
    """
    name = _AROUND.sub("", name.lower())
    heads = _HEADS.get(_SAME.get(name, name))
    if heads is None:
        return None
    return [[int(part) for part in pair.split(".")] for pair in heads.split()]
