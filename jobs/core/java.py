"""The Java that Spark would start, looked at before Spark is: without it Spark ends in a stack trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from jobs.core.errors import FleetdiffError

OLDEST = 17
"""Oldest Java that Spark 4.2 runs on."""
MEND = "sudo apt-get install -y openjdk-17-jre-headless"


def program() -> str | None:
    """The program that Spark starts: that of `JAVA_HOME`, else the one on the path; None when there is none."""
    home = os.environ.get("JAVA_HOME")
    named = Path(home, "bin", "java") if home else None
    return str(named) if named and named.exists() else None if named else shutil.which("java")


def major_of(java: str) -> int:
    """Its major version; 0 when it does not tell."""
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else 0


def require() -> None:
    """Raise FleetdiffError with the mend when Spark would not start; not under `spark-submit`, which has started its Java."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    java = program()
    if java is None:
        where = (
            f"JAVA_HOME={os.environ['JAVA_HOME']} has no bin/java" if os.environ.get("JAVA_HOME") else "there is none on the path"
        )
        raise FleetdiffError(f"Java: Spark needs Java {OLDEST} or newer, and {where}; {MEND}")
    major = major_of(java)
    if major < OLDEST:
        raise FleetdiffError(f"Java: Spark needs Java {OLDEST} or newer, and {java} is {major or 'of no known version'}; {MEND}")
