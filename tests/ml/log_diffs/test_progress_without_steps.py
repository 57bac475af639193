"""Jobs whose logs print a loss but no step number: they had begun to train."""

import pytest

from ml.log_diffs.diff import diff_job
from ml.log_diffs.evidence import Count, Evidence
from ml.log_diffs.topology import Job, Place
from ml.log_diffs.utterances import Utterance

PLACES = tuple(Place(r, f"n{r}", 0) for r in range(4))
JOB = Job("j", "FAILED", nodes=("n0", "n1", "n2", "n3"), places=PLACES, world_size=4)


def failed(phase):
    return Utterance("k", "KeyError: 'x'", "n2", 2, "trainer", "stderr", alert="exception", first_at=50.0, phase=phase)


@pytest.mark.parametrize(
    ("counts", "phase", "has_trained"),
    [
        ((Count("training.iteration.dict", "n0", "trainer", 30, (0,)),), "init", True),  # {'loss': 2.1, 'epoch': 0.3}
        ((), "train", True),
        ((), "init", False),
        ((Count("checkpoint.loaded", "n0", "trainer", 1, (0,)),), "load", False),
    ],
)
def test_a_printed_loss_tells_that_training_had_begun(counts, phase, has_trained):
    found = diff_job(Evidence(JOB, (failed(phase),), counts)).onsets
    assert any(f.kind == "progressed" for f in found) is has_trained
