#!/bin/sh
# check_dependencies.sh libtessera_runtime.so libtessera_runtime.a
# The runtime may need libc, libm and threads, and nothing of the C++ library; it exports tessera_* only.
set -u
export LC_ALL=C
shared=$1 static=$2
for tool in readelf nm; do
  command -v $tool >/dev/null || { echo "skipped: no $tool (binutils) here"; exit 77; }
done
failed=0
complain() { echo "$1"; failed=1; }

needed=$(readelf -d "$shared" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || complain "no NEEDED entry read from $shared"
for library in $needed; do
  case $library in
    libc.so.*|libm.so.*|libpthread.so.*|libdl.so.*|ld-linux*.so.*) ;;
    *) complain "$shared needs $library" ;;
  esac
done

exported=$(nm -D --defined-only "$shared" | awk '{ sub(/@.*/, "", $NF); print $NF }')
echo "$exported" | grep -qx tessera_session_run || complain "$shared does not export tessera_session_run"
for symbol in $exported; do
  case $symbol in
    tessera_*) ;;
    *) complain "$shared exports $symbol" ;;
  esac
done

# Undefined in some object of the archive, defined in none.
nm -u "$static" | awk 'NF == 2 { print $2 }' | sort -u >"$static.undefined"
nm --defined-only "$static" | awk 'NF == 3 { print $3 }' | sort -u >"$static.defined"
for symbol in $(nm -D -u "$shared" | awk '{ sub(/@.*/, "", $NF); print $NF }') \
              $(comm -23 "$static.undefined" "$static.defined"); do
  case $symbol in
    __cxa_finalize) ;;
    _Z*|__cxa_*|__gxx_*|_Unwind_*|__dynamic_cast|XXH*) complain "undefined symbol $symbol" ;;
  esac
done
rm -f "$static.undefined" "$static.defined"

[ $failed = 0 ] && echo "needs: $(echo $needed); exports: $(echo "$exported" | wc -l) functions"
exit $failed
