"""A branch, a tag or a commit of a model on the hub."""

from __future__ import annotations

import pytest

from pipelines.errors import ModelError, ModelNotFound
from pipelines.hub import folder_or_pull
from pipelines.hub.cache import storage_folder
from tests.fixtures.hub import Hub
from tests.hub.conftest import TINY, whisper_files


def refs() -> set[str]:
    """The branches and tags that the cache knows."""
    folder = storage_folder(TINY) / "refs"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def test_a_tag_is_kept_beside_the_main_branch(hub: Hub) -> None:
    hosted = hub.host_files(TINY, whisper_files())
    assert folder_or_pull("tiny", True, revision="v2").name == hosted.commit
    assert refs() == {"v2"}
    assert folder_or_pull("tiny", True, revision=hosted.commit).name == hosted.commit
    assert refs() == {"v2"}, "a commit needs no name"


def test_a_hub_that_answers_with_another_commit_is_refused(hub: Hub) -> None:
    hub.host_files(TINY, whisper_files())
    with pytest.raises(ModelError, match="answers with commit [0-9a-f]{40} for f{40}"):
        folder_or_pull("tiny", True, revision="f" * 40)
    assert refs() == set()


def test_a_ref_that_is_named_like_a_commit_is_not_followed(hub: Hub) -> None:
    hosted = hub.host_files(TINY, whisper_files())
    folder = folder_or_pull("tiny", True, revision="v2")
    (storage_folder(TINY) / "refs" / ("f" * 40)).write_text(hosted.commit)
    with pytest.raises(ModelNotFound, match="at f{40} is not in"):
        folder_or_pull("tiny", False, revision="f" * 40)
    assert folder_or_pull("tiny", False, revision="v2") == folder
