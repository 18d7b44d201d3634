"""Cached encoder-decoder generation: token ids in, token ids out.

engine = Engine(device="auto", compute_type="auto")
model = engine.load(folder)
(encoded,) = model.encode([source])
for event in engine.stream(Request(encoded, prompt, GenerationOptions(max_new_tokens=50))):
    event.tokens
"""

from pipelines.engine.autoregressive import (
    DebugEvent,
    autoregressive_generate,
    autoregressive_generate_encoder_decoder,
    speculative_generate,
    speculative_generate_encoder_decoder,
)
from pipelines.engine.backends.module_loader import SlowModel
from pipelines.engine.decoding.contrastive import ContrastiveFilter
from pipelines.engine.decoding.request import (
    DraftBatch,
    Drafter,
    DraftSession,
    Event,
    FinishReason,
    Hypothesis,
    Proposal,
    Request,
    Result,
)
from pipelines.engine.decoding.sampling.forced_phrases import ForcedPhrases
from pipelines.engine.decoding.sampling.logit_filters import (
    AllowOnlyTokens,
    BadWords,
    BoundFilter,
    ForcedEnd,
    ForcedPrefix,
    LogitFilter,
    MinNewTokens,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressAtBegin,
    SuppressTokens,
    apply_filters,
)
from pipelines.engine.decoding.sampling.logits_processors import (
    GreedyProcessor,
    LogitsProcessor,
    MinPProcessor,
    MultinomialProcessor,
    NucleusProcessor,
    TopAProcessor,
    TopKNucleusProcessor,
    TopKProcessor,
)
from pipelines.engine.decoding.sampling.options import GenerationOptions, StoppingRule
from pipelines.engine.decoding.speculative.drafters import NgramDrafter, NgramStore
from pipelines.engine.decoding.speculative.model_drafter import ModelDrafter
from pipelines.engine.decoding.statistics import Statistics
from pipelines.engine.drafting import Drafting, DraftReport, load_draft_model
from pipelines.engine.engine import Engine
from pipelines.engine.kernels.loader import CompileProgress
from pipelines.engine.loaded_model import LoadedModel
from pipelines.engine.process_pool import ProcessPool
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.stream import Stream
from pipelines.engine.tasks import (
    MY_TURN,
    Pending,
    SourceHandle,
    Task,
    TaskLimits,
    events_of,
    interleave,
)
from pipelines.engine.transformers_check import Comparison, compare_with_transformers
from pipelines.engine.weights.convert import convert_model
from pipelines.families.architecture import Architecture

__all__ = [
    "MY_TURN",
    "AllowOnlyTokens",
    "Architecture",
    "BadWords",
    "BoundFilter",
    "Comparison",
    "CompileProgress",
    "ContrastiveFilter",
    "DebugEvent",
    "DraftBatch",
    "DraftReport",
    "Drafter",
    "Drafting",
    "DraftSession",
    "EncodedSource",
    "Engine",
    "Event",
    "FinishReason",
    "ForcedPhrases",
    "ForcedEnd",
    "ForcedPrefix",
    "GenerationOptions",
    "GreedyProcessor",
    "Hypothesis",
    "LoadedModel",
    "LogitFilter",
    "LogitsProcessor",
    "MinNewTokens",
    "MinPProcessor",
    "ModelDrafter",
    "MultinomialProcessor",
    "NgramDrafter",
    "NgramStore",
    "NoRepeatNgram",
    "NucleusProcessor",
    "Pending",
    "ProcessPool",
    "Proposal",
    "RepetitionPenalty",
    "Request",
    "Result",
    "SlowModel",
    "SourceHandle",
    "Statistics",
    "StoppingRule",
    "Stream",
    "SuppressAtBegin",
    "SuppressTokens",
    "Task",
    "TaskLimits",
    "TopAProcessor",
    "TopKNucleusProcessor",
    "TopKProcessor",
    "apply_filters",
    "compare_with_transformers",
    "convert_model",
    "events_of",
    "interleave",
    "load_draft_model",
    "autoregressive_generate",
    "autoregressive_generate_encoder_decoder",
    "speculative_generate",
    "speculative_generate_encoder_decoder",
]
