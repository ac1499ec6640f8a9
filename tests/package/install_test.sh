#!/bin/sh
# install_test.sh CMAKE BUILD PROGRAM.c PLAIN FLOW
# What `cmake --install --component runtime` puts is enough to build and run programs: by find_package, by pkg-config and by
# the link line of the docs; moved to another place, too. PROGRAM is tests/runtime/values_library_test.c.
set -eu
cmake=$1 build=$2 program=$3 plain=$4 flow=$5
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build" --component runtime --prefix "$folder/first" --strip >"$folder/log" || { cat "$folder/log"; exit 1; }
mv "$folder/first" "$folder/prefix"
lib=$folder/prefix/lib

try() { # EXPECTED PROGRAM
  echo "$(basename "$2"), $(wc -c <"$2") bytes: $1"
  "$2" "$plain" "$flow" "$1"
}
unset LD_LIBRARY_PATH
"$cmake" -S "$here/installed" -B "$folder/cmake" -DCMAKE_PREFIX_PATH="$folder/prefix" -DPROGRAM="$program" \
  -DCMAKE_BUILD_TYPE=Release >"$folder/log" && "$cmake" --build "$folder/cmake" >>"$folder/log" || { cat "$folder/log"; exit 1; }
try absent "$folder/cmake/with_runtime"
try present "$folder/cmake/with_values"
try present "$folder/cmake/with_runtime_shared"

cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
"$cc" "$program" -I"$folder/prefix/include" -o "$folder/by_line" -L"$lib" \
  -Wl,-Bstatic -Wl,-u,tessera_values_library -ltessera_values -ltessera_runtime -Wl,-Bdynamic -pthread -ldl
try present "$folder/by_line"
"$cc" "$program" -I"$folder/prefix/include" -o "$folder/by_line_alone" -L"$lib" -Wl,-Bstatic -ltessera_runtime -Wl,-Bdynamic -pthread -ldl
try absent "$folder/by_line_alone"

command -v pkg-config >/dev/null || { echo "no pkg-config here: its files are not tested"; exit 0; }
export PKG_CONFIG_PATH="$lib/pkgconfig"
for package in tessera tessera-values; do
  "$cc" "$program" $(pkg-config --cflags $package) -o "$folder/by_$package" $(pkg-config --libs $package) -Wl,-rpath,"$lib"
  try present "$folder/by_$package"
done
rm "$lib"/libtessera_values.so*
try absent "$folder/by_tessera"
