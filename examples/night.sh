#!/bin/sh
# One night through the real Airflow, without a server: ARCHIVE LAKE REPORT.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${FLEETDIFF_BUILD:-$root/build}
mkdir -p "$build" "$2" "$3"
archive=$(cd "$1" && pwd); lake=$(cd "$2" && pwd); report=$(cd "$3" && pwd)
log="$build/night.log"

export AIRFLOW_HOME="$build/airflow" AIRFLOW__CORE__DAGS_FOLDER="$root/dags" AIRFLOW__CORE__LOAD_EXAMPLES=False
export FLEETDIFF_PYTHON="$root/.venv/bin/python" FLEETDIFF_ARCHIVE="$archive" FLEETDIFF_LAKE="$lake" FLEETDIFF_REPORT="$report"
airflow="$root/.venv-airflow/bin/airflow"

echo "night: $archive through Airflow; everything it says goes to $log" >&2
"$airflow" db migrate >"$log" 2>&1
status=0
# The stages' progress lines are for the person who waits; the rest is for the log.
"$airflow" dags test --dagfile-path "$root/dags/nightly.py" fleetdiff_nightly 2>&1 | tee -a "$log" |
    sed -nu -e 's/.*\(\[[0-9]*\/[0-9]*\] [a-z_]* *[0-9.]* s\).*/  \1/p' -e 's/.*\(\[[0-9]*\/[0-9]*\] [a-z_]* *nothing new\).*/  \1/p' >&2 ||
    status=$?
if ! grep -q "Marking run .* successful" "$log"; then
    echo "the night failed; the reason is near the end of $log:" >&2
    grep -E "fleetdiff: |Error" "$log" | cut -c 1-300 | tail -n 3 >&2
    exit 1
fi
"$root/.venv/bin/fleetdiff" summary --lake "$lake" --report "$report"
exit "$status"
