#!/usr/bin/env bash
# Sets up, builds and runs the tests; the last lines are ctest's own.
#
#   scripts/test.sh                            release build: the fast tests, and a quarter of those labelled 'slow',
#                                              another one every day (TESSERA_TEST_QUARTER=0..3 chooses it)
#   scripts/test.sh --all | CTEST-OPTION...    release build: every test (about an hour on two cores), or those chosen
#   scripts/test.sh --fast [CTEST-OPTION...]   release build: the fast tests alone (about seven minutes on two cores)
#   scripts/test.sh --full                     the whole matrix: release, asan+ubsan, tsan, instruction sets,
#                                              optimiser off, 1 and 2 threads; ends with a dated summary
#
# Tests that need data which is not in the repository look for it in TESSERA_TEST_DATA, then in ../shared, and say so
# when they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=default
case ${1:-} in
  --fast | --all) mode=${1#--}; shift ;;
  --full) mode=full; shift ;;
  -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac

run_ctest() { # PRESET OPTION...
  local preset=$1
  shift
  ctest --preset "$preset" --parallel "$(nproc)" "$@"
}

# The numbers of the fast tests, and of the slow ones of a quarter: those of fuzzing are one quarter, for what they need
# is built for them alone; of the others each takes every third.
tests_of_quarter() { # QUARTER
  comm -23 <(listed | sort) <(listed --label-regex '^slow$' | sort)
  if [[ $1 == 0 ]]; then
    listed --label-regex '^slow$' --label-regex '^fuzz$'
  else
    listed --label-regex '^slow$' --label-exclude '^fuzz$' | sort -k 2 | awk -v quarter="$1" 'NR % 3 == quarter - 1'
  fi
}

listed() { # CTEST-OPTION...: number and name of each test
  ctest --preset release -N "$@" | sed -n 's/^ *Test *#\([0-9]*\): \(.*\)/\1 \2/p'
}

if [[ $mode != full ]]; then
  scripts/build.sh release
  options=()
  [[ $mode != fast ]] || options+=(--label-exclude '^slow$')
  if [[ $mode == default && $# -eq 0 ]]; then
    quarter=${TESSERA_TEST_QUARTER:-$((10#$(date -u +%j) % 4))}
    options+=(--tests-information "0,0,0,$(tests_of_quarter "$quarter" | cut -d ' ' -f 1 | paste -sd ,)")
    echo "test: of the slow tests, quarter $quarter of 0..3 (TESSERA_TEST_QUARTER chooses it, --all runs all four)"
  fi
  run_ctest release "${options[@]}" "$@"
  exit
fi

# --- the matrix -----------------------------------------------------------------------------------------------------
# The tests that compile models read these variables: TESSERA_TEST_TARGET (as --target), TESSERA_TEST_OPT_LEVEL (as
# -O), TESSERA_TEST_THREADS (as --threads). A row of the matrix is a build and a setting of them.
logs=out/test-full
mkdir -p "$logs"
rows=()
failed=0

row() { # NAME PRESET [VARIABLE=VALUE...] [-- CTEST-OPTION...]
  local name=$1 preset=$2 settings=() begin=$SECONDS verdict
  shift 2
  while [[ $# -gt 0 && $1 != -- ]]; do settings+=("$1"); shift; done
  [[ ${1:-} != -- ]] || shift
  echo "test: === $name"
  if scripts/build.sh "$preset" && env "${settings[@]}" ctest --preset "$preset" --parallel "$(nproc)" "$@" \
      2>&1 | tee "$logs/$name.log"; then
    verdict=$(grep -E 'tests? passed' "$logs/$name.log" | tail -1)
  else
    verdict="FAILED: $(grep -E 'tests? passed' "$logs/$name.log" 2>/dev/null | tail -1)"
    failed=$((failed + 1))
  fi
  rows+=("$(printf '%-22s %-58s %5ds' "$name" "$verdict" $((SECONDS - begin)))")
}

cpu_has() { grep -qw "$1" /proc/cpuinfo; }
compiled='conformance|e2e|reference' # the labels of the tests that run compiled code

row release release TESSERA_TEST_FULL=1
row debug debug
row asan-ubsan asan
row tsan tsan -- --label-regex 'e2e|runtime|unit'
row O0 release TESSERA_TEST_OPT_LEVEL=0 -- --label-regex "$compiled"
row x86-64-v2 release TESSERA_TEST_TARGET=x86-64-v2 -- --label-regex "$compiled"
if cpu_has avx2; then row x86-64-v3 release TESSERA_TEST_TARGET=x86-64-v3 -- --label-regex "$compiled"; fi
if cpu_has avx512vl; then row x86-64-v4 release TESSERA_TEST_TARGET=x86-64-v4 -- --label-regex "$compiled"; fi
row one-thread release TESSERA_TEST_THREADS=1 -- --label-regex "$compiled"
row two-threads release TESSERA_TEST_THREADS=2 -- --label-regex "$compiled"

{
  echo "Full matrix, $(date -u +%F), commit $(git rev-parse --short HEAD 2>/dev/null || echo '-'), $(nproc) cores," \
    "$(grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //')"
  printf '%s\n' "${rows[@]}"
} | tee "$logs/summary.txt"
echo "$((${#rows[@]} - failed)) passed, $failed failed"
[[ $failed -eq 0 ]]
