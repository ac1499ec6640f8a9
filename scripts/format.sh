#!/usr/bin/env bash
# Lays out the C and C++ sources as .clang-format says.
#
#   scripts/format.sh [--check] [FILE...]      default: every source that git knows; --check changes nothing
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[[ ${1:-} != --check ]] || { mode=(--dry-run --Werror); shift; }
command -v clang-format-19 >/dev/null || {
  echo "format: clang-format-19 is missing; scripts/setup.sh --dev installs it" >&2
  exit 1
}
if [[ $# -eq 0 ]]; then
  mapfile -t sources < <(git ls-files -- '*.c' '*.cpp' '*.h')
  set -- "${sources[@]}"
fi
clang-format-19 "${mode[@]}" "$@"
