"""Drafts for all requests of a pipeline: by a smaller model, or by n-grams of its own output."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.engine.decoding.speculative.drafters import Drafter, NgramDrafter, NgramStore
from pipelines.engine.decoding.speculative.model_drafter import ModelDrafter
from pipelines.engine.loaded_model import LoadedModel
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.tasks import SourceHandle
from pipelines.errors import OptionError, RequestError

__all__ = ["DraftReport", "Drafting"]

_GAMMA = 4  # tokens of the first draft of a request; later ones adapt
_NGRAMS = (2, 4)  # the shortest and the longest n-gram that a continuation is proposed for
_TRIAL = 8  # sources that a draft model encodes, before its encoder has to have paid off
_PROBE_FRAMES = 64


@dataclass(frozen=True)
class DraftReport:
    """What drafting did.

    Attributes:
        drafted: Drafted tokens.
        accepted: Those that the model would have chosen itself.
        saved_s: Seconds saved, estimated from timed steps; the draft model's encoder is counted.
        pauses: How often drafting was paused because it lost time.
        stopped: The draft model was given up: its encoder took longer than its drafts saved.
    """

    drafted: int
    accepted: int
    saved_s: float
    pauses: int
    stopped: bool


class Drafting:
    """Encodes the sources of one pipeline, and drafts for its greedy requests.

    The output is that of the model alone. Drafting pauses while it takes longer than it saves.

    Args:
        model: The model whose output is drafted.
        draft_model: A smaller model with the same vocabulary that takes the same sources. Where its
            encoder is the model's, as after distillation, it is run once for both.
        ngrams: Draft with n-grams of all output so far instead.

    Raises:
        OptionError: Both are given.
        RequestError: The draft model has another vocabulary, or takes other sources.
    """

    def __init__(
        self, model: LoadedModel, draft_model: LoadedModel | None = None, ngrams: bool = False
    ) -> None:
        if ngrams and draft_model is not None:
            raise OptionError("draft with a model or with n-grams, not with both")
        self._model, self._draft_model = model, draft_model
        self._ngrams = None
        if ngrams:
            store = NgramStore(longest=_NGRAMS[1], shortest=_NGRAMS[0])
            self._ngrams = NgramDrafter(store, gamma=_GAMMA, adaptive=True, pauses=True)
        self._encoded: weakref.WeakKeyDictionary[EncodedSource, EncodedSource]
        self._encoded = weakref.WeakKeyDictionary()  # by the model → by the draft model
        self._sources, self._encoder_s = 0, 0.0  # of the draft model's own encoder
        self._shares_encoder = False
        if draft_model is not None:
            _check_pair(model, draft_model)
            self._shares_encoder = _have_same_encoder(model, draft_model)

    @property
    def active(self) -> bool:
        """Whether there is a drafter."""
        return self._draft_model is not None or self._ngrams is not None

    @property
    def report(self) -> DraftReport:
        """The figures so far, of all requests that the model runs."""
        done = self._model.statistics
        saved_s = done.draft_saved_s - self._encoder_s
        return DraftReport(done.drafted, done.accepted, saved_s, done.draft_pauses, self._stopped)

    def encode(self, sources: Sequence[Any]) -> list[EncodedSource]:
        """As LoadedModel.encode, and for the draft model too."""
        draft_model = self._draft_model
        if draft_model is None or not sources or self._stopped:
            return self._model.encode(sources)
        if self._shares_encoder:
            pairs = self._model.encode_sharing(sources, draft_model)
        else:
            encoded = self._model.encode(sources)
            started = time.perf_counter()
            pairs = list(zip(encoded, draft_model.encode(sources), strict=True))
            self._encoder_s += time.perf_counter() - started
            self._sources += len(sources)
        self._encoded.update(pairs)
        return [encoded for encoded, _ in pairs]

    def source(self, source: Any) -> SourceHandle:
        """A source that is encoded when it is needed."""
        return SourceHandle(source, self.encode)

    def drafter_for(self, encoded: EncodedSource, options: GenerationOptions) -> Drafter | None:
        """The drafter of a request; None for sampling, whose draws drafts would change, and for
        several sequences.

        Args:
            encoded: The source, from `encode`.
            options: The request's options.
        """
        if options.samples or options.max_sequences > 1:
            return None
        if self._draft_model is None:
            return self._ngrams
        drafted = self._encoded.get(encoded)
        if drafted is None:  # encoded after the draft model was given up
            return None
        return ModelDrafter(self._draft_model, drafted, gamma=_GAMMA, adaptive=True, pauses=True)

    @property
    def _stopped(self) -> bool:
        """Whether the draft model's own encoder has cost more than its drafts have saved."""
        if self._sources < _TRIAL:
            return False
        return self._model.statistics.draft_saved_s < self._encoder_s


def _check_pair(model: LoadedModel, draft_model: LoadedModel) -> None:
    own, other = model.architecture, draft_model.architecture
    name, draft_name = model.folder.name, draft_model.folder.name
    if own.vocab_size != other.vocab_size:
        raise RequestError(
            f"{draft_name} cannot draft for {name}: it has a vocabulary of {other.vocab_size}, not "
            f"of {own.vocab_size}; choose a smaller model of the same family and version"
        )
    sources = ("source", "num_mel_bins", "source_vocab_size")
    if any(getattr(own, part) != getattr(other, part) for part in sources):
        raise RequestError(f"{draft_name} cannot draft for {name}: it takes other sources")


def _have_same_encoder(model: LoadedModel, draft_model: LoadedModel) -> bool:
    """Whether both encoders compute the same: a short source is encoded by one and by both."""
    probe = _probe(model)
    try:
        ((_, shared),) = model.encode_sharing([probe], draft_model)
    except RequestError:  # of another shape
        return False
    (own,) = draft_model.encode([probe])
    difference = (own.keys[0].float() - shared.keys[0].float()).abs().max()
    return bool(difference <= 0.05 * own.keys[0].float().abs().max())


def _probe(model: LoadedModel) -> Tensor | list[int]:
    architecture = model.architecture
    if architecture.source == "audio":
        frames = min(_PROBE_FRAMES, 2 * architecture.max_source_positions)
        count = architecture.num_mel_bins * frames
        return torch.arange(count).sin().view(architecture.num_mel_bins, frames)
    return [*range(3, 11), architecture.eos_ids[0]]
