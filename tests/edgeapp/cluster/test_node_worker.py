"""What a machine of a cluster sends to the driver; without ray, in one process."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from edgeapp.cluster.node_worker import Failure, ModelChoice, NodeWorker
from edgeapp.cluster.remote_models import _checked
from edgeapp.settings import Settings
from pipelines import ModelNotFound


def test_a_missing_model_is_an_error_with_the_model_to_download(hub_cache: Path) -> None:
    failure = NodeWorker(Settings(), ModelChoice("transcriber", (None, "de", "transcribe"))).load()
    assert isinstance(failure, Failure)
    with pytest.raises(ModelNotFound, match="no recognizer for de is on this machine") as error:
        _checked(pickle.loads(pickle.dumps(failure)))
    assert error.value.download == "base"
