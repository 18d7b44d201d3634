"""Drafts for all requests of a pipeline: by a smaller model, or by n-grams of its own output."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.decoding.request import Drafter
from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.engine.decoding.speculative.drafters import NgramDrafter, NgramStore
from pipelines.engine.decoding.speculative.model_drafter import ModelDrafter
from pipelines.engine.engine import Engine
from pipelines.engine.loaded_model import LoadedModel
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.tasks import SourceHandle
from pipelines.errors import CheckpointError, OptionError, RequestError
from pipelines.json_files import read_json_list

_GAMMA = 4  # tokens of the first draft of a request; later ones adapt
_NGRAMS = (2, 4)  # the shortest and the longest n-gram that a continuation is proposed for
_TRIAL = 8  # sources that a draft model encodes, before its encoder has to have paid off
_SHORTLIST = "shortlist.json"


def load_draft_model(
    engine: Engine, folder: Path, shortlist: Sequence[int] | None = None
) -> LoadedModel:
    """Load a draft model.

    Its folder may hold shortlist.json, a list of the only ids that it drafts. The LM head is the
    largest part of a small decoder; one with the rows of frequent ids only takes a fraction of
    the time. The output stays that of the model drafted for, which verifies every draft.

    Args:
        engine: Loads it.
        folder: The draft model.
        shortlist: The only ids that the model drafted for generates; None for all.

    Raises:
        CheckpointError: The folder holds no usable model, or no usable shortlist.
    """
    path = folder / _SHORTLIST
    if not path.exists():
        return engine.load(folder, shortlist)
    ids = read_json_list(path)
    if not all(type(token) is int for token in ids):
        raise CheckpointError(f"{path} does not hold a list of token ids")
    if shortlist is not None:
        ids = sorted({*ids} & {*shortlist})
    try:
        return engine.load(folder, ids)
    except OptionError as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from None


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
            encoder is the model's, as after distillation, it is run once for both. Where its
            layers also attend to the same keys and values as layers of the model, these are
            computed once for both.
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
        self._shared_layers: tuple[int, ...] | None = None
        if draft_model is not None:
            _check_pair(model, draft_model)
            self._shares_encoder = _have_same_encoder(model, draft_model)
            if self._shares_encoder:
                self._shared_layers = _layers_with_same_sources(model, draft_model)

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

    def encode(self, sources: Sequence[Any], priority: int = 0) -> list[EncodedSource]:
        """As LoadedModel.encode, and for the draft model too."""
        draft_model = self._draft_model
        if draft_model is None or not sources or self._stopped:
            return self._model.encode(sources, priority)
        if self._shared_layers is not None:
            encoded = self._model.encode(sources, priority)
            pairs = [
                (each, draft_model.reuse_source(each, self._shared_layers)) for each in encoded
            ]
        elif self._shares_encoder:
            pairs = self._model.encode_sharing(sources, draft_model, priority)
        else:
            encoded = self._model.encode(sources, priority)
            started = time.perf_counter()
            pairs = list(zip(encoded, draft_model.encode(sources, priority), strict=True))
            self._encoder_s += time.perf_counter() - started
            self._sources += len(sources)
        self._encoded.update(pairs)
        return [encoded for encoded, _ in pairs]

    def source(self, source: Any, priority: int = 0) -> SourceHandle:
        """A source that is encoded when it is needed; priority: as for LoadedModel.encode."""
        encode = partial(self.encode, priority=priority)
        ahead = partial(self._encode_ahead, priority)
        return SourceHandle(source, encode, self._model.takes_any_shapes, ahead)

    def _encode_ahead(self, priority: int, source: Any) -> Future[EncodedSource] | None:
        return None if self._draft_model is not None else self._model.encode_ahead(source, priority)

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
    """Return whether both encoders compute the same: a short source is encoded by one and by both.

    Only native models share encoders, and only their sources have examples.
    """
    if not all(isinstance(each.backend, NativeBackend) for each in (model, draft_model)):
        return False
    probe = model.source.example(short=True)
    try:
        ((_, shared),) = model.encode_sharing([probe], draft_model)
    except RequestError:  # of another shape
        return False
    (own,) = draft_model.encode([probe])
    difference = (own.keys[0].float() - shared.keys[0].float()).abs().max()
    return bool(difference <= 0.05 * own.keys[0].float().abs().max())


def _layers_with_same_sources(
    model: LoadedModel, draft_model: LoadedModel
) -> tuple[int, ...] | None:
    """For each decoder layer of the draft model, one of the model that attends to equal keys and
    values; None if a layer has no such one."""
    ((own, other),) = model.encode_sharing([model.source.example(short=True)], draft_model)
    layers = []
    for keys, values in zip(other.keys, other.values, strict=True):
        candidates = enumerate(zip(own.keys, own.values, strict=True))
        same = (i for i, (k, v) in candidates if k.equal(keys) and v.equal(values))
        layers.append(next(same, None))
    found = tuple(layer for layer in layers if layer is not None)
    return found if len(found) == len(layers) else None
