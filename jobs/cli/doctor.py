"""`fleetdiff doctor`: what this machine has and lacks, and how to mend it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from jobs.core.errors import CheckError


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for: its state, and the command that mends it when it is not well."""

    what: str
    is_well: bool
    state: str
    mend: str = ""


@click.command(name="doctor", short_help="What this machine lacks, and how to mend it.")
@click.option("--lake", type=click.Path(), help="Look at this lake too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(lake: str | None, as_json: bool) -> None:
    """Look for what fleetdiff needs; exit code 1 when something is missing."""
    found = list(findings(lake))
    if as_json:
        import json

        click.echo(json.dumps([finding.__dict__ for finding in found], indent=2))
    else:
        for each in found:
            mend = "" if each.is_well else f"   mend: {each.mend}"
            click.echo(f"{'ok  ' if each.is_well else 'MISS'} {each.what:<14} {each.state}{mend}")
    lacking = [each.what for each in found if not each.is_well]
    if lacking:
        raise CheckError(f"missing or unfit: {', '.join(lacking)}")


def findings(lake: str | None) -> Iterator[Finding]:
    """Everything that is looked for, in the order in which one would mend it."""
    running = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("Python", sys.version_info[:2] == (3, 11), running, "make setup PYTHON=python3.11")
    yield java_state()
    yield from packages()
    yield jars()
    yield airflow()
    yield chromium()
    if lake is not None:
        yield lake_state(lake)


def java_state() -> Finding:
    """The Java that Spark would start, and whether Spark can run on it."""
    from jobs.core.java import MEND, OLDEST, major_of, program

    java = program()
    if java is None:
        return Finding("Java", False, "not found", MEND)
    major = major_of(java)
    # Spark asks for the vector module; runtimes cut to size may lack it.
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False).stdout
    if major >= OLDEST and "jdk.incubator.vector" not in modules:
        return Finding("Java", False, f"{major}, without the module jdk.incubator.vector", MEND)
    return Finding("Java", major >= OLDEST, str(major or "unknown"), MEND)


def packages() -> Iterator[Finding]:
    """The packages whose versions the tables depend on."""
    from jobs.core.session import PINNED

    for package, wanted in PINNED.items():
        try:
            have = version(package)
        except PackageNotFoundError:
            have = "not installed"
        yield Finding(package, have == wanted, have, f"make setup (wants {wanted})")


def jars() -> Finding:
    """The Delta jars that set-up resolved."""
    from jobs.core.session import jar_folder

    folder = jar_folder()
    present = sorted(folder.glob("delta-spark*.jar"))
    archive = "with class archive" if (folder / "classes.jsa").exists() else "without class archive (slower start)"
    state = f"{present[0].name}, {archive}" if present else f"none in {folder}"
    return Finding("Delta jars", bool(present), state, "make setup")


def airflow() -> Finding:
    """The other environment."""
    program = Path(sys.prefix).parent / ".venv-airflow" / "bin" / "airflow"
    return Finding("Airflow", program.exists(), str(program) if program.exists() else "not found", "make setup")


def chromium() -> Finding:
    """The browser that tests open pages with; nothing else needs it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    state = program or "not found: page tests skip themselves (sudo apt-get install -y chromium)"
    return Finding("Chromium", True, state)


def lake_state(lake: str) -> Finding:
    """Whether every table of the lake is there and can be opened."""
    from deltalake import DeltaTable

    from jobs.core.lake import table_path
    from schemas import tables

    absent = [name for name in tables() if not DeltaTable.is_deltatable(table_path(lake, name))]
    if len(absent) == len(tables()):
        return Finding("lake", False, f"{lake} holds no tables", f"fleetdiff run ARCHIVE --lake {lake}")
    state = f"{len(tables()) - len(absent)} of {len(tables())} tables"
    return Finding("lake", not absent, state, f"fleetdiff run ARCHIVE --lake {lake} creates: {', '.join(absent)}")
