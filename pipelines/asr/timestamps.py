"""Whisper's timestamp tokens: the grammar that decoding follows, and the segments they delimit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.asr.audio.features import FRAMES_PER_SECOND
from pipelines.engine import BoundFilter
from pipelines.errors import RequestError

TIME_PRECISION = 0.02  # seconds between consecutive timestamp tokens
_FRAMES_PER_TIMESTAMP = 2  # 10 ms frames


@dataclass(frozen=True)
class WhisperTimestamps:
    """Logit filter for Whisper's timestamp grammar, as openai-whisper's ApplyTimestampRules.

    Timestamps come in pairs (except directly before end of text), never decrease, and open the
    output. A timestamp is forced where the timestamps' summed probability exceeds that of the
    most probable other token.

    Attributes:
        begin: Id of <|0.00|>; this and all higher ids are timestamps.
        eot: Id of end of text; all lower ids are text.
        no_timestamps: Id of the token that switches timestamps off, which is suppressed.
        max_initial_index: The first timestamp is at most `begin + max_initial_index`. None: no
            limit.
        last_index: No timestamp is after `begin + last_index`, where the sound ends; the text ends
            with that one. None: no limit.
    """

    begin: int
    eot: int
    no_timestamps: int | None
    max_initial_index: int | None = 50
    last_index: int | None = None

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        """The filter for one generation; see `pipelines.engine.LogitFilter`.

        Raises:
            RequestError: The ids do not fit each other or the vocabulary.
        """
        if not self.eot < self.begin < vocab_size:
            raise RequestError(
                f"timestamps from id {self.begin} on do not fit end of text {self.eot} "
                f"and a vocabulary of {vocab_size}"
            )
        last_allowed = None if self.last_index is None else self.begin + self.last_index
        given = _given_text(prompt, self.eot, self.begin)
        latest: int | None = None  # the last timestamp so far
        counted = 0  # how many tokens of the text `latest` accounts for

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            nonlocal latest, counted
            text_so_far = (*given, *generated) if given else generated
            for token in text_so_far[counted:]:
                latest = token if token >= self.begin else latest
            counted = len(text_so_far)
            if self.no_timestamps is not None:
                logits[self.no_timestamps] = -torch.inf
            last = bool(text_so_far) and text_so_far[-1] >= self.begin
            before = len(text_so_far) < 2 or text_so_far[-2] >= self.begin
            if last and before:
                logits[self.begin :] = -torch.inf  # the pair is complete: text follows
            elif last:
                logits[: self.eot] = -torch.inf  # half a pair: its second timestamp, or the end
            if latest is not None:
                # The second of a pair may repeat the first; a segment is never empty.
                lowest = latest if last and not before else latest + 1
                logits[self.begin : lowest] = -torch.inf
            if not text_so_far:
                logits[: self.begin] = -torch.inf
                if self.max_initial_index is not None:
                    logits[self.begin + self.max_initial_index + 1 :] = -torch.inf
                if last_allowed is not None:
                    logits[max(last_allowed, self.begin + 1) :] = -torch.inf  # text fits before it
            # Comparing logits compares probabilities: both lack the same normaliser. Masked
            # instead of branched on where that would make a GPU synchronise.
            text = logits[: self.begin]
            # numpy's maximum takes a tenth of the time of torch's.
            highest = float(text.numpy().max()) if text.is_cpu else text.max()
            stamped = logits[self.begin :].logsumexp(-1) > highest
            if last_allowed is not None:
                logits[last_allowed + 1 :] = -torch.inf
                if latest is not None and latest >= last_allowed:
                    logits[: self.eot] = logits[self.begin :] = -torch.inf
                    return
            if not logits.is_cpu or stamped:
                text.masked_fill_(stamped, -torch.inf)

        return bound


def _given_text(prompt: Sequence[int], eot: int, begin: int) -> tuple[int, ...]:
    """Return the part of the prompt that begins the text: what follows its last control token."""
    after = next((i for i in range(len(prompt), 0, -1) if eot <= prompt[i - 1] < begin), None)
    return () if after is None else tuple(prompt[after:])


@dataclass(frozen=True)
class TokenSpan:
    """The tokens of one segment.

    Attributes:
        start: Seconds from the start of the window.
        end: Seconds from the start of the window.
        tokens: Ids, timestamps included.
    """

    start: float
    end: float
    tokens: tuple[int, ...]


def split_at_timestamps(
    tokens: Sequence[int], timestamp_begin: int, frames: int
) -> tuple[list[TokenSpan], int]:
    """Split a window's tokens into segments.

    Two consecutive timestamps separate segments. Tokens after the last such pair belong to speech
    that the end of the window cut off: the next window begins there and contains it in full. A
    single timestamp at the very end means that no more speech follows, so the window is complete.

    Args:
        tokens: Generated ids of the window, without end of text.
        timestamp_begin: Id of <|0.00|>.
        frames: Length of the window in frames of 10 ms.

    Returns:
        The spans, and how many frames later the next window begins.
    """
    stamped = [token >= timestamp_begin for token in tokens]
    ends_single = stamped[-2:] == [False, True]
    cuts = [i for i in range(1, len(tokens)) if stamped[i - 1] and stamped[i]]
    if not cuts:
        end = frames / FRAMES_PER_SECOND
        last = next((t for t in reversed(tokens) if t >= timestamp_begin), timestamp_begin)
        if last != timestamp_begin:
            end = (last - timestamp_begin) * TIME_PRECISION
        return [TokenSpan(0.0, end, tuple(tokens))], frames
    if ends_single:
        cuts.append(len(tokens))
    spans = []
    for start, stop in zip([0, *cuts], cuts, strict=False):
        span = tuple(tokens[start:stop])
        first, last = span[0] - timestamp_begin, span[-1] - timestamp_begin
        spans.append(TokenSpan(first * TIME_PRECISION, last * TIME_PRECISION, span))
    if ends_single:
        return spans, frames
    return spans, (tokens[cuts[-1] - 1] - timestamp_begin) * _FRAMES_PER_TIMESTAMP
