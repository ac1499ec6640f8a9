#!/bin/sh
# check_dependencies.sh libtessera_runtime.so libtessera_runtime.a libtessera_values.so libtessera_values.a [BYTES]
# The libraries may need libc, libm and threads, and nothing of the C++ library; they export tessera_* only. The runtime
# has nothing of what tessera_values is for, and at most BYTES when stripped; tessera_values has no second copy of what is
# there once: sessions, modules and threads.
set -u
export LC_ALL=C
runtime_shared=$1 runtime_static=$2 values_shared=$3 values_static=$4 most=${5:-}
for tool in readelf nm strip; do
  command -v $tool >/dev/null || { echo "skipped: no $tool (binutils) here"; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
complain() { echo "$1"; failed=1; }

undefined_in() { nm -u "$1" | awk 'NF == 2 { print $2 }' | sort -u; }
defined_in() { nm --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort -u; }

defined_in "$runtime_static" >"$folder/runtime"
# What values.a defines for others to call, which is what the name of a function or table stands for; inline functions,
# which may be in both, are weak.
nm --defined-only "$values_static" | awk 'NF == 3 && $2 ~ /^[TDRB]$/ { print $3 }' | sort -u >"$folder/values"
[ "$(wc -l <"$folder/values")" -gt 10 ] || complain "hardly a symbol in $values_static"

check_library() { # SHARED STATIC ENTRY: ENTRY is exported
  needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  [ -n "$needed" ] || complain "no NEEDED entry read from $1"
  for library in $needed; do
    case $library in
      libc.so.*|libm.so.*|libpthread.so.*|libdl.so.*|ld-linux*.so.*) ;;
      *) complain "$1 needs $library" ;;
    esac
  done
  exported=$(nm -D --defined-only "$1" | awk '{ sub(/@.*/, "", $NF); print $NF }')
  echo "$exported" | grep -qx "$3" || complain "$1 does not export $3"
  for symbol in $exported; do
    case $symbol in
      tessera_*) ;;
      *) complain "$1 exports $symbol" ;;
    esac
  done
  # Undefined in some object of the archive, defined neither there nor in the runtime's.
  undefined_in "$2" >"$folder/undefined"
  defined_in "$2" | sort -u - "$folder/runtime" >"$folder/defined"
  for symbol in $(nm -D -u "$1" | awk '{ sub(/@.*/, "", $NF); print $NF }') \
                $(comm -23 "$folder/undefined" "$folder/defined"); do
    case $symbol in
      __cxa_finalize) ;;
      _Z*|__cxa_*|__gxx_*|_Unwind_*|__dynamic_cast|XXH*) complain "undefined symbol $symbol in $1 or $2" ;;
    esac
  done
  strip -o "$folder/stripped" "$1"
  bytes=$(wc -c <"$folder/stripped")
  echo "$1: $bytes bytes; needs: $(echo $needed); exports: $(echo "$exported" | wc -l)"
}

check_library "$values_shared" "$values_static" tessera_values_library
check_library "$runtime_shared" "$runtime_static" tessera_session_run
[ -z "$most" ] || [ "$bytes" -le "$most" ] || complain "$runtime_shared has $bytes bytes, more than $most"

for file in "$runtime_static" "$runtime_shared"; do
  for symbol in $(defined_in "$file" | comm -12 - "$folder/values"); do complain "$file has $symbol of values"; done
done
for symbol in $(defined_in "$values_shared"); do
  case $symbol in
    *ThreadPool*|*create_session*|*load_from_path*|*ModuleFile*open*) complain "$values_shared has $symbol of the core" ;;
  esac
done
exit $failed
