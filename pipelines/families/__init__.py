"""The families of models that run here: a file for each native one, data without torch.

The engine, the hub and the tokenizers read this table; a test compares assets/docs/families.md with
it. A new family is a file with a `Family`, and its name in `FAMILIES` (table.py).
"""

from pipelines.families.config import read_config
from pipelines.families.family import Family, Task, TokenizerKind
from pipelines.families.table import (
    FAMILIES,
    architecture_of,
    class_of,
    family_by_type,
    family_of,
    is_native,
    native_types,
    task_of,
    wrapped_types,
)

__all__ = [
    "FAMILIES",
    "Family",
    "Task",
    "TokenizerKind",
    "architecture_of",
    "class_of",
    "family_by_type",
    "family_of",
    "is_native",
    "native_types",
    "read_config",
    "task_of",
    "wrapped_types",
]
