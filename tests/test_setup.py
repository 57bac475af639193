"""Set-up says in one line what is missing and how to get it."""

from __future__ import annotations

import os
import subprocess

import pytest

# what `java -version` prints on standard error, exit code of the check, what it says
JAVAS = [
    ('openjdk version "17.0.15" 2025-04-15', 0, ""),
    ('openjdk version "21.0.2" 2024-01-16', 0, ""),
    ('openjdk version "11.0.2" 2019-01-15', 1, "this is Java 11: sudo apt-get install -y openjdk-17-jre-headless"),
    ('java version "1.8.0_392"', 1, "this is Java 1: sudo apt-get install -y openjdk-17-jre-headless"),
    (None, 1, "there is none: sudo apt-get install -y openjdk-17-jre-headless"),
]


@pytest.mark.parametrize(("printed", "code", "said"), JAVAS, ids=["17", "21", "11", "8", "none"])
def test_a_missing_or_old_java_is_one_line_with_the_command_that_mends_it(root, tmp_path, printed, code, said):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "sed", "head"):
        (tools / tool).symlink_to(f"/bin/{tool}" if os.path.exists(f"/bin/{tool}") else f"/usr/bin/{tool}")
    if printed is not None:
        (tools / "java").write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
        (tools / "java").chmod(0o755)
    done = subprocess.run([root / "examples" / "java.sh"], capture_output=True, text=True, env={"PATH": str(tools)}, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == (1 if code else 0)


def test_locks_pin_every_package_by_hash_and_name_no_registry(root):
    for lock in sorted((root / "requirements").glob("*.txt")):
        text = lock.read_text()
        packages = [line for line in text.splitlines() if line and not line.startswith((" ", "#", "-"))]
        assert packages, lock.name
        assert all("==" in line for line in packages), lock.name
        assert "://" not in text, lock.name
        assert text.count("--hash=sha256:") >= len(packages), lock.name
