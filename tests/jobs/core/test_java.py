"""Java is looked for before Spark starts: its absence is one line with the mend."""

from __future__ import annotations

import pytest

from jobs.core import java
from jobs.core.errors import FleetdiffError

# what `java -version` prints to standard error, the major version
TOLD = [
    ('openjdk version "17.0.12" 2024-07-16', 17),
    ('openjdk version "21" 2023-09-19', 21),
    ('java version "1.8.0_202"', 1),
    ("nothing of use", 0),
]


def fake(folder, told):
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("told", "major"), TOLD)
def test_the_major_version_is_read(tmp_path, told, major):
    assert java.major_of(str(fake(tmp_path, told))) == major


def test_no_java_on_the_path_is_told_with_the_mend(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FleetdiffError, match="there is none on the path; sudo apt-get install"):
        java.require()


def test_java_home_comes_before_the_path_as_spark_has_it(tmp_path, monkeypatch):
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(FleetdiffError, match="has no bin/java"):
        java.require()
    fake(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(FleetdiffError, match="is 11; sudo"):
        java.require()
