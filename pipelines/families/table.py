"""All families, and what a config.json says about its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.families.architecture import Architecture
from pipelines.families.bart import BART
from pipelines.families.config import shorten
from pipelines.families.family import Family, Task
from pipelines.families.m2m_100 import M2M_100
from pipelines.families.marian import MARIAN, OPENNMT
from pipelines.families.mbart import MBART
from pipelines.families.moonshine import MOONSHINE
from pipelines.families.mt5 import MT5
from pipelines.families.pegasus import PEGASUS
from pipelines.families.t5 import T5
from pipelines.families.through_transformers import THROUGH_TRANSFORMERS
from pipelines.families.whisper import WHISPER

FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        WHISPER,
        MARIAN,
        M2M_100,
        MBART,
        BART,
        T5,
        MT5,
        PEGASUS,
        OPENNMT,
        MOONSHINE,
        *THROUGH_TRANSFORMERS,
    )
}
"""model_type → family."""

# Ends of the names of classes that generate no text, though their model_type may run here.
_NOT_GENERATING = ("Classification", "QuestionAnswering", "EncoderModel", "ForCausalLM")


def family_by_type(config: Mapping[str, Any]) -> Family | None:
    """Return the family that the model_type of a config.json names, whatever the model's class;
    None if there is no such family here."""
    return FAMILIES.get(str(config.get("model_type")))


def family_of(config: Mapping[str, Any]) -> Family | None:
    """Return the family of a model by its config.json; None for a model that generates no text or
    is of no family here."""
    family = family_by_type(config)
    if family is None:
        return None
    name = class_of(config)
    runs = name in family.classes if family.classes else not name.endswith(_NOT_GENERATING)
    return family if runs else None


def task_of(config: Mapping[str, Any]) -> Task | None:
    """Return the task of a model by its config.json; None for one that has no use here."""
    family = family_of(config)
    return None if family is None else family.task


def is_native(config: Mapping[str, Any]) -> bool:
    """Return whether the program's own code runs a model, rather than that of transformers."""
    family = family_of(config)
    return family is not None and family.architecture is not None and family.native_variant(config)


def class_of(config: Mapping[str, Any]) -> str:
    """Return the class of transformers that a config.json names; "" if it names none."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def native_types() -> str:
    """Return the model types of the native families, for messages."""
    native = [family for family in FAMILIES.values() if family.architecture is not None]
    # No config.json that is published says "opennmt".
    return ", ".join(family.model_type for family in native if family is not OPENNMT)


def wrapped_types() -> str:
    """Return the model types that transformers runs for a task, for messages."""
    wrapped = [f for f in FAMILIES.values() if f.architecture is None and f.task is not None]
    return ", ".join(family.model_type for family in wrapped)


def architecture_of(config: Mapping[str, Any], where: str) -> Architecture:
    """Return the architecture that a config.json describes.

    Args:
        config: Content of the file.
        where: Name of the model in errors.

    Raises:
        CheckpointError: The family is not native, the class generates no text, or a value is
            missing or impossible.
    """
    family = family_by_type(config)
    if family is not None and family.architecture is not None and family_of(config) is None:
        raise CheckpointError(
            f"{where}: config.json names the class {shorten(class_of(config))}, which does not "
            "turn a source into text"
        )
    if family is None or family.architecture is None:
        raise CheckpointError(
            f"{where}: model_type {shorten(repr(config.get('model_type')))} is not supported; this "
            f"engine runs {native_types()}, and through transformers the classes of it that "
            "generate, by `architectures` of config.json"
        )
    try:
        return family.architecture(config)
    except KeyError as error:
        raise CheckpointError(f"{where}: config.json lacks {error.args[0]!r}") from None
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise CheckpointError(f"{where}: config.json is invalid: {error}") from error
