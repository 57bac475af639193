"""Strange configurations in job records: they are read, and compared or refused."""

from __future__ import annotations

import pytest

from jobs.adapters.job_record import parse
from ml.configs.classes import default_classes
from ml.configs.describe import describe
from ml.configs.match import Tried, decide


@pytest.mark.parametrize(
    "config",
    [
        "&a {x: *a}",
        "{a: &b [*b, 1]}",
        "{lr: .nan}",
        "{}",
        "null",
        "[1, 2]",
        "text",
        "{" + ", ".join(f"k{n}: {n}" for n in range(10_000)) + "}",
    ],
    ids=["mapping in itself", "list in itself", "nan", "empty", "null", "list", "text", "10,000 keys"],
)
def test_a_strange_configuration_is_read_and_refused_with_a_reason(config: str) -> None:
    record = parse("job.yaml", f"job_id: j\nstate: FAILED\nconfig: {config}\n".encode())
    this = describe(record.config, default_classes())
    found = decide(this, [], [], Tried(), default_classes())
    assert found.baselines == ()
    assert found.refused is not None
