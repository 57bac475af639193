"""What all tests share: one Spark, the example archive, and data that may be absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.core.tables import Lake

ROOT = Path(__file__).resolve().parents[1]
# Lakes have keys of their own; tests compare the tables of two lakes, also where secrets were.
os.environ.setdefault("FLEETDIFF_REDACTION_KEY", "tests")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def examples() -> Path:
    """The example archive and its truth."""
    return ROOT / "examples"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Data of others, used in place; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("FLEETDIFF_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent; set FLEETDIFF_SHARED to run this test")
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the test run."""
    from jobs.core import session

    os.environ.setdefault("FLEETDIFF_DRIVER_MEMORY", "2g")
    started = session.start("fleetdiff-tests")
    # On a handful of rows adaptive execution costs more than it saves.
    started.conf.set("spark.sql.adaptive.enabled", "false")
    started.conf.set("spark.sql.shuffle.partitions", "2")
    yield started
    started.stop()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """An empty lake of its own for each test."""
    return _empty(spark, tmp_path)


@pytest.fixture(scope="module")
def module_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """An empty lake that the tests of one module share."""
    return _empty(spark, tmp_path_factory.mktemp("lake"))


def _empty(spark: SparkSession, folder: Path) -> Lake:
    from jobs.core.lake import create_missing
    from jobs.core.tables import Lake

    create_missing(folder)
    return Lake(spark, str(folder))


@pytest.fixture(scope="session")
def chromium():
    """Headless Chromium that cannot reach anything; tests skip, saying so, where there is none."""
    path = os.environ.get("FLEETDIFF_CHROMIUM", "/usr/bin/chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(path).exists():
        pytest.skip(f"no Chromium at {path}; install it or name it in FLEETDIFF_CHROMIUM")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield browser
        browser.close()
