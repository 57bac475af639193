#!/bin/sh
# Says in one line whether Java fits, and how to get one that does.
mend="sudo apt-get install -y openjdk-17-jre-headless"
command -v java >/dev/null || { echo "fleetdiff needs Java 17 or newer, and there is none: $mend" >&2; exit 1; }
major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${major:-0}" -ge 17 ] || { echo "fleetdiff needs Java 17 or newer, and this is Java ${major:-unknown}: $mend" >&2; exit 1; }
