"""Set-up: resolves the Delta jars once, so that a session starts in seconds and without a network.

python -m jobs.core.jars            resolve what is missing
python -m jobs.core.jars --classes  archive the loaded classes too (class-data sharing: halves a session's start)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from jobs.core.errors import FleetdiffError
from jobs.core.session import PINNED, jar_folder

COORDINATE = f"io.delta:delta-spark_4.2_2.13:{PINNED['delta-spark']}"
IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


def pyspark_home() -> Path:
    """The installed pyspark package."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FleetdiffError("environment: pyspark is not installed; run `make setup`")
    return Path(spec.origin).parent


def resolve() -> list[Path]:
    """Fetch the jars that pyspark lacks into the jar folder; those already there are left.

    Raises FleetdiffError with the resolver's own last words when they cannot be had.
    """
    folder = jar_folder()
    present = sorted(folder.glob(f"delta-spark*{PINNED['delta-spark']}.jar"))
    if present:
        return present
    with tempfile.TemporaryDirectory() as scratch:
        settings = Path(scratch, "ivysettings.xml")
        settings.write_text(IVY_SETTINGS)
        script = Path(scratch, "nothing.py")
        script.write_text("")
        command = [
            str(pyspark_home() / "bin" / "spark-submit"), "--packages", COORDINATE,
            "--conf", f"spark.jars.ivySettings={settings}", "--conf", f"spark.jars.ivy={scratch}/ivy", str(script),
        ]  # fmt: skip
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        fetched = sorted(Path(scratch, "ivy", "jars").glob("*.jar"))
        if done.returncode or not fetched:
            last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            raise FleetdiffError(f"{COORDINATE}: could not be fetched ({last}); check the way to Maven Central")
        return _keep(fetched, folder)


def _keep(fetched: list[Path], folder: Path) -> list[Path]:
    """Copy what pyspark does not bring itself; Ivy puts `organisation_` before a jar's own name."""
    folder.mkdir(parents=True, exist_ok=True)
    brought = {_artifact(jar.name) for jar in (pyspark_home() / "jars").glob("*.jar")}
    kept = []
    for jar in fetched:
        own_name = jar.name.split("_", 1)[1]
        if _artifact(own_name) not in brought and jar.name.startswith(("io.delta_", "io.unitycatalog_")):
            kept.append(Path(shutil.copy(jar, folder / own_name)))
    return kept


def _artifact(jar_name: str) -> str:
    return jar_name.rsplit("-", 1)[0]


def archive_classes() -> Path:
    """Write the class archive from one small Delta session. It fits this machine's Java only; without it all works."""
    from jobs.core import session

    target = jar_folder() / "classes.jsa"
    if target.exists():
        return target
    code = (
        "import sys, tempfile\n"
        "from jobs.core import session\n"
        "spark = session.start('classes')\n"
        "path = tempfile.mkdtemp()\n"
        "rows = spark.range(100).selectExpr('id', 'id % 3 AS k', 'cast(id AS string) AS s')\n"
        "rows.write.format('delta').mode('overwrite').save(path)\n"
        "kept = rows.filter('k = 1')\n"
        "kept.write.format('delta').mode('overwrite').option('replaceWhere', 'k = 1').save(path)\n"
        "read = spark.read.format('delta').load(path)\n"
        "read.groupBy('k').count().join(read, 'k').count()\n"
        "read.groupBy('k').applyInPandas(lambda pdf: pdf, read.schema).count()\n"
        "spark.stop()\n"
    )
    options = f'{session.java_options()} "-XX:ArchiveClassesAtExit={target}"'
    environment = {**os.environ, "FLEETDIFF_JAVA_OPTIONS": options, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    return target


def main() -> None:
    """Resolve, and with `--classes` archive; says what is there in one line."""
    try:
        resolve()
        if "--classes" in sys.argv[1:]:
            archive_classes()
    except FleetdiffError as error:
        sys.exit(f"fleetdiff: {error}")
    sys.stdout.write(f"Delta jars are in {jar_folder()}\n")


if __name__ == "__main__":
    main()
