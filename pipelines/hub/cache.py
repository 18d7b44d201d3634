"""Models in the Hugging Face cache of this machine, and the check whether a folder is usable.

The cache is the standard one (HF_HUB_CACHE, HF_HOME or ~/.cache/huggingface, as huggingface_hub
reads them), so models that other tools downloaded are found.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.formats import LINKS
from pipelines.hub.assets import Task
from pipelines.hub.listing import is_shard_name
from pipelines.hub.names import is_repository, shown
from pipelines.json_files import TOKENIZER_BYTES, read_json_object

__all__ = [
    "FAMILIES",
    "TASKS",
    "WRAPPED",
    "cache_folder",
    "free_bytes",
    "language_tokens",
    "cached_models",
    "cached_repositories",
    "cached_snapshot",
    "is_native",
    "read_json",
    "reads_lines",
    "shard_names",
    "size_of",
    "snapshots",
    "storage_folder",
    "task_of",
    "task_of_config",
    "unsupported",
    "unusable",
    "usable_snapshot",
    "use_cache_folder",
]

# model_type in config.json of the families that the engine runs → their task.
TASKS: dict[str, Task] = {
    "whisper": "asr",
    "marian": "translation",
    "m2m_100": "translation",
    "mbart": "translation",
    "bart": "translation",
    "t5": "translation",
    "opennmt": "translation",
    "moonshine": "asr",
}

# Classes of transformers that run in its own code, by `architectures` of config.json → their task.
WRAPPED: dict[str, Task] = {
    "EncoderDecoderModel": "translation",
    "FSMTForConditionalGeneration": "translation",
    "MT5ForConditionalGeneration": "translation",
    "NllbMoeForConditionalGeneration": "translation",
    "PegasusForConditionalGeneration": "translation",
    "ProphetNetForConditionalGeneration": "translation",
    "UMT5ForConditionalGeneration": "translation",
    "Speech2TextForConditionalGeneration": "asr",
    "SpeechT5ForSpeechToText": "asr",
    "BlipForConditionalGeneration": "reading",
    "Blip2ForConditionalGeneration": "reading",
    "GitForCausalLM": "reading",
    "VisionEncoderDecoderModel": "reading",
}

# For messages. No config.json says "opennmt", and a class is known by what comes before its "For".
FAMILIES = (
    f"{', '.join(family for family in TASKS if family != 'opennmt')} and, through transformers, "
    f"{', '.join(name.split('For')[0] for name in WRAPPED)}"
)
# Ends of the names of classes that generate no text, though their model_type may run here.
_NOT_GENERATING = ("Classification", "QuestionAnswering", "EncoderModel", "ForCausalLM")

# A usable folder has at least one file of each group.
_TOKENIZER_FILES: dict[str, tuple[tuple[str, ...], ...]] = {
    "whisper": (("tokenizer.json", "vocab.json"), ("tokenizer.json", "merges.txt")),
    "marian": (("source.spm",), ("target.spm",), ("vocab.json",)),
    "opennmt": (("source.spm",), ("target.spm",), ("vocab.json",)),
    "m2m_100": (("sentencepiece.bpe.model", "tokenizer.json"),),
    "mbart": (("sentencepiece.bpe.model", "tokenizer.json"),),
    "bart": (("tokenizer.json", "vocab.json"), ("tokenizer.json", "merges.txt")),
    "t5": (("spiece.model", "tokenizer.json"),),
    "moonshine": (("tokenizer.json",),),
}
_WRAPPED_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm_char.model",
    "vocab-src.json",
    "prophetnet.tokenizer",
)
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_SEPARATE_VOCABULARIES = (("target_vocab.json",),)


_chosen_folder: Path | None = None


def cache_folder() -> Path:
    """The Hugging Face cache of this machine, or the chosen one; it need not exist yet."""
    if _chosen_folder is not None:
        return _chosen_folder
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def language_tokens(folder: Path) -> tuple[str, ...] | None:
    """Return the codes of the languages that a Whisper model has tokens for; None if its
    generation_config.json has no table of them and does not say that it knows English only."""
    config = read_json(folder / "generation_config.json")
    if config.get("is_multilingual") is False:
        return ("en",)
    table = config.get("lang_to_id")
    if not isinstance(table, dict):
        return None
    return tuple(str(token).strip("<|>") for token in table)


def free_bytes() -> int:
    """Return the free bytes on the disk of the cache."""
    cache = cache_folder()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return shutil.disk_usage(existing).free


def use_cache_folder(folder: Path | None) -> None:
    """Use another cache in this process; None for that of the machine."""
    global _chosen_folder
    _chosen_folder = folder


def cached_snapshot(repository: str) -> Path | None:
    """The folder of a cached repository: the newest usable snapshot, else the newest.

    Returns:
        None if the cache has no snapshot of it.
    """
    return usable_snapshot(repository) or next(iter(snapshots(repository)), None)


def usable_snapshot(repository: str) -> Path | None:
    """The folder of a cached repository: the newest snapshot that can be loaded, or None."""
    return next((each for each in snapshots(repository) if unusable(each) is None), None)


def snapshots(repository: str) -> list[Path]:
    """The folders of a cached repository, the newest first."""
    try:
        parent = storage_folder(repository) / "snapshots"
        folders = [folder for folder in parent.iterdir() if folder.is_dir()]
    except OSError:
        return []
    main = _main_commit(repository)
    # The commit of "main" first: a later download of an older commit does not replace it.
    folders.sort(key=lambda folder: (folder.name == main, folder.stat().st_mtime), reverse=True)
    return folders


def cached_repositories() -> Iterator[str]:
    """The repositories in the cache, sorted; some may be incomplete."""
    try:
        entries = sorted(cache_folder().iterdir())
    except OSError:
        return
    for entry in entries:
        kind, _, name = entry.name.partition("--")
        repository = name.replace("--", "/")
        if kind == "models" and is_repository(repository):
            yield repository


def cached_models() -> Iterator[tuple[str, Path]]:
    """(repository, folder) of every usable model in the cache, sorted by repository."""
    for repository in cached_repositories():
        try:
            folder = usable_snapshot(repository)
            if folder is not None:
                yield repository, folder
        except OSError:  # such as a folder without permission: the others are listed
            continue


def task_of(folder: Path) -> Task | None:
    """The task of the model in a folder; None if its config.json names no model that runs here."""
    return task_of_config(read_json(folder / "config.json"))


def task_of_config(config: dict[str, Any]) -> Task | None:
    """The task of a model, native or of transformers; None for one that does not run here."""
    name = _class_name(config)
    if name in WRAPPED:
        return WRAPPED[name]
    if name.endswith(_NOT_GENERATING):
        return None
    return TASKS.get(str(config.get("model_type")))


def unsupported(config: dict[str, Any], subject: str = "it") -> str | None:
    """Why a kind of model does not run here, as a sentence about `subject`; None if it does."""
    if task_of_config(config) is not None:
        return None
    if str(config.get("model_type")) in TASKS:
        return f"{subject} is a {shown(_class_name(config))}, which generates no text"
    model_type = shown(config.get("model_type"))
    return f"{subject} has the model_type {model_type}; what runs here: {FAMILIES}"


def reads_lines(folder: Path) -> bool:
    """Whether the model in a folder was trained on pictures of single lines, as TrOCR."""
    decoder = read_json(folder / "config.json").get("decoder")
    return isinstance(decoder, dict) and decoder.get("model_type") == "trocr"


def is_native(folder: Path) -> bool:
    """Whether the model in a folder runs in the program's own code, not in that of transformers."""
    return str(read_json(folder / "config.json").get("model_type")) in TASKS


def _class_name(config: dict[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def unusable(folder: Path) -> str | None:
    """Why a folder cannot be loaded as a model, as the end of a sentence; None if it can."""
    config = read_json(folder / "config.json")
    if not config:
        return "it has no readable config.json"
    if reason := unsupported(config):
        return reason
    family, task = str(config.get("model_type")), task_of_config(config)
    missing = _missing_weights(folder)
    if missing:
        return f"it lacks {missing}"
    groups = _TOKENIZER_FILES.get(family, (_WRAPPED_TOKENIZER_FILES,))
    if family not in TASKS and task != "translation":
        groups += (_PROCESSOR_FILES,)
    if read_json(folder / "tokenizer_config.json").get("separate_vocabs"):
        groups += _SEPARATE_VOCABULARIES
    for group in groups:
        if not any((folder / name).is_file() for name in group):
            return f"it lacks {' and '.join(group)}"
    return None


def size_of(*folders: Path) -> int:
    """Return the bytes of the files in folders; links are followed, each file counts once."""
    files = {file.resolve() for each in folders for file in each.rglob("*") if file.is_file()}
    return sum(file.stat().st_size for file in files)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model; empty if it cannot be read, or is refused."""
    try:
        return read_json_object(path, TOKENIZER_BYTES)
    except (FileNotFoundError, CheckpointError):
        return {}


def shard_names(index: Path) -> list[str]:
    """The weights files that an index names, sorted; empty if it cannot be read."""
    weight_map = read_json(index).get("weight_map")
    files = weight_map.values() if isinstance(weight_map, dict) else ()
    return sorted({str(file) for file in files})


def storage_folder(repository: str) -> Path:
    """The folder of a repository in the cache; it need not exist yet."""
    return cache_folder() / f"models--{repository.replace('/', '--')}"


def _main_commit(repository: str) -> str:
    """The commit of the newest complete download; "" if there is none."""
    try:
        return (storage_folder(repository) / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _missing_weights(folder: Path) -> str | None:
    """The first missing weights file, in the order in which the engine looks for them."""
    for single in ("model.safetensors", "pytorch_model.bin"):
        if (folder / single).is_file():
            return None
        index = folder / f"{single}.index.json"
        if index.is_file():
            shards = shard_names(index)
            for shard in shards:
                if not is_shard_name(shard):
                    return f"the file {shown(shard)} that {index.name} names"
                if not (folder / shard).is_file():
                    return shard
            return None if shards else f"a readable {index.name}"
    if any((folder / link).is_file() for link in LINKS):
        return None
    return "weights (model.safetensors or pytorch_model.bin)"
