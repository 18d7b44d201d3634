"""The assembly of a live session from models, for the command line and the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeapp.live.pair_translators import PairTranslators
    from edgeapp.live.session import LiveSession
    from edgeapp.model_pool import ModelPool
    from pipelines import LiveOptions, Transcriber, Translator

__all__ = ["SessionSetup", "make_session"]


@dataclass(frozen=True)
class SessionSetup:
    """A live session on shared models.

    Attributes:
        session: The session, with a state of its own.
        recognizer: The recognizer.
        language: The code of the spoken language, None while it is unknown.
        translator: The translator, if the language is known before.
        pairs: The translators of the languages that are detected.
    """

    session: LiveSession
    recognizer: Transcriber
    language: str | None
    translator: Translator | None = None
    pairs: PairTranslators | None = None

    @contextmanager
    def using(self, pool: ModelPool) -> Iterator[None]:
        """A context in which its models cannot be unloaded."""
        models: list[Transcriber | Translator] = [self.recognizer]
        models += [] if self.translator is None else [self.translator]
        with pool.using(*models):
            try:
                yield
            finally:
                if self.pairs is not None:
                    self.pairs.close()


def make_session(
    pool: ModelPool,
    recognizer: Transcriber,
    options: LiveOptions,
    target: str | None,
    translation_model: str | None,
    speakers: Sequence[str] = (),
) -> SessionSetup:
    """Make a live session, and load the translator of a language that is known.

    Args:
        pool: The shared models.
        recognizer: The recognizer.
        options: Of recognition.
        target: The code of the language to translate into; None: no translation.
        translation_model: The name of the translator; None: the best one.
        speakers: The names of those who are heard on a channel each; none: one channel.

    Raises:
        ModelError: The translator is not installed, or is for another task.
        UnsupportedTask: A model lacks a language.
    """
    from edgeapp.english_only import HeardLanguage
    from edgeapp.live.pair_translators import PairTranslators, live_translator
    from edgeapp.live.session import LiveSession
    from edgeapp.live.speech_channel import SpeechChannel
    from pipelines import LiveTranscriber

    recognizers = [LiveTranscriber(recognizer, options) for _ in speakers or ("",)]
    language = recognizers[0].language
    source = "en" if options.transcribe.task == "translate" else language
    translator, pairs = None, None
    if target is not None and source is not None:
        translator = pool.translator(translation_model, source, target)
    elif target is not None:
        pairs = PairTranslators(pool, translation_model, target)
    channels = [
        SpeechChannel(
            live,
            None if translator is None or target is None else live_translator(translator, target),
            speaker,
            pairs,
        )
        for live, speaker in zip(recognizers, speakers or ("",), strict=True)
    ]
    session = LiveSession(*channels, heard=HeardLanguage(recognizer, options.transcribe.language))
    return SessionSetup(session, recognizer, language, translator, pairs)
