"""One place where a Spark session is made: UTC, Delta, local jars, sized for where it runs."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.core.errors import FleetdiffError

PINNED = {"pyspark": "4.2.0", "delta-spark": "4.4.0", "drain3": "0.9.11"}
"""Versions that the tables and template ids depend on; checked before any work starts."""


def jar_folder() -> Path:
    """Where set-up put the Delta jars: `FLEETDIFF_JARS`, else `.jars` beside the packages' environment."""
    named = os.environ.get("FLEETDIFF_JARS")
    return Path(named) if named else Path(sys.prefix).parent / ".jars"


def check_versions() -> None:
    """Raise when a pinned package has another version."""
    wrong = {p: version(p) for p in PINNED if version(p) != PINNED[p]}
    if wrong:
        found = ", ".join(f"{p} is {have} and must be {PINNED[p]}" for p, have in wrong.items())
        raise FleetdiffError(f"environment: {found}; run `make setup`")


def delta_jars() -> list[Path]:
    """The Delta jars; raises with the mend when set-up has not resolved them."""
    jars = sorted(jar_folder().glob("*.jar"))
    if not any(jar.name.startswith("delta-spark") for jar in jars):
        raise FleetdiffError(f"{jar_folder()}: no Delta jars here; run `make setup`")
    return jars


def java_options() -> str:
    """JVM options of a small local night: quick compiler, serial collector, shared classes when they were archived.

    `FLEETDIFF_JAVA_OPTIONS` replaces them all.
    """
    if "FLEETDIFF_JAVA_OPTIONS" in os.environ:
        return os.environ["FLEETDIFF_JAVA_OPTIONS"]
    options = [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xss4m",
        # The quick compiler alone gets 48 MB by default; a night fills that, and then nothing is compiled any more.
        "-XX:ReservedCodeCacheSize=240m",
        "-Duser.timezone=UTC",
        "-Djava.net.preferIPv4Stack=true",
    ]
    # Quoted: a folder's name may hold a space.
    options.append(f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"')
    archive = jar_folder() / "classes.jsa"
    if archive.exists():
        options += [f'"-XX:SharedArchiveFile={archive}"', "-Xshare:auto", "-Xlog:cds=off", "-Xlog:class+path=off"]
    return " ".join(options)


def local_settings() -> dict[str, str]:
    """Settings of a session on one machine, measured in `bench/README.md`."""
    return {
        "spark.master": os.environ.get("FLEETDIFF_MASTER", "local[2]"),
        "spark.driver.memory": os.environ.get("FLEETDIFF_DRIVER_MEMORY", "3g"),
        "spark.driver.extraJavaOptions": java_options(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        # Each task of a hash join or sort fills one page with zeros before its first row: by default, 64 MB.
        "spark.buffer.pageSize": "2m",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    }


def start(app_name: str = "fleetdiff") -> SparkSession:
    """Start (or join) the Spark session.

    On a cluster, `spark-submit` has set the master already and only what the results depend on is added here.
    """
    check_versions()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        for key, value in local_settings().items():
            builder = builder.config(key, value)
    session = (
        builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
