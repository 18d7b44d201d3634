"""The families that run in the code of transformers, which have no architecture here."""

from __future__ import annotations

from pipelines.families.family import TOKENIZER_FILES, Family, FileGroups

_PROCESSOR = ("preprocessor_config.json", "processor_config.json")
_TEXT: FileGroups = (TOKENIZER_FILES,)
_OTHER: FileGroups = (TOKENIZER_FILES, _PROCESSOR)

THROUGH_TRANSFORMERS = (
    Family("encoder-decoder", "translation", ("EncoderDecoderModel",), _TEXT),
    Family("fsmt", "translation", ("FSMTForConditionalGeneration",), _TEXT, passes="one token"),
    Family(
        "nllb-moe",
        "translation",
        ("NllbMoeForConditionalGeneration",),
        _TEXT,
        "m2m_100",
        passes="one row",
    ),
    Family(
        "prophetnet",
        "translation",
        ("ProphetNetForConditionalGeneration",),
        _TEXT,
        passes="one token",
    ),
    Family("umt5", "translation", ("UMT5ForConditionalGeneration",), _TEXT, "mt5"),
    Family("speech_to_text", "asr", ("Speech2TextForConditionalGeneration",), _OTHER),
    Family("speecht5", "asr", ("SpeechT5ForSpeechToText",), _OTHER),
    Family("blip", "reading", ("BlipForConditionalGeneration",), _OTHER),
    Family("blip-2", "reading", ("Blip2ForConditionalGeneration",), _OTHER),
    Family("git", "reading", ("GitForCausalLM",), _OTHER),
    Family("vision-encoder-decoder", "reading", ("VisionEncoderDecoderModel",), _OTHER),
    # The engine alone runs these.
    Family("seamless_m4t", None, ("SeamlessM4TForSpeechToText", "SeamlessM4TForTextToText")),
    Family(
        "switch_transformers",
        None,
        ("SwitchTransformersForConditionalGeneration",),
        passes="one row",
    ),
)
