#!/usr/bin/env bash
# Sets up what is missing, configures and builds.
#
#   scripts/build.sh [PRESET] [TARGET...]      PRESET: release (default), debug, asan, tsan, fuzz (the fuzz targets alone)
#
# The results are in build/ (build-PRESET/ for the other presets).
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
case ${1:-} in
  release | debug | asan | tsan | fuzz) preset=$1; shift ;;
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac

scripts/setup.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset "$preset" >"$log" 2>&1 || {
  cat "$log" >&2
  echo "build: cmake could not configure (see above)" >&2
  exit 1
}
cmake --build --preset "$preset" --parallel "${TESSERA_BUILD_JOBS:-$(nproc)}" ${1:+--target "$@"}
