#!/bin/sh
# values_library_test.sh SHARED_PROGRAM STATIC_PROGRAM RUNTIME VALUES FOREIGN PLAIN FLOW
# Where libtessera_values.so is found: beside the runtime, or where the dynamic loader looks; of this build alone.
# SHARED_PROGRAM and STATIC_PROGRAM are values_library_test with libtessera_runtime.{so,a}, without libtessera_values.
set -eu
shared=$1 static=$2 runtime=$3 values=$4 foreign=$5 plain=$6 flow=$7
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/alone" "$folder/both" "$folder/values" "$folder/foreign" "$folder/misplaced"
for place in alone both foreign misplaced; do cp "$runtime" "$folder/$place/libtessera_runtime.so.0"; done
for place in both values; do cp "$values" "$folder/$place/libtessera_values.so.0"; done
cp "$foreign" "$folder/foreign/libtessera_values.so.0"
echo "no library" >"$folder/misplaced/libtessera_values.so.0"

try() { # EXPECTED PROGRAM FOLDERS
  echo "$2 with libraries in $3: $1"
  LD_LIBRARY_PATH=$3 "$2" "$plain" "$flow" "$1"
}
try absent "$shared" "$folder/alone"
try present "$shared" "$folder/both"
try present "$shared" "$folder/alone:$folder/values"
try foreign "$shared" "$folder/foreign"
try present "$shared" "$folder/both:$folder/foreign"       # its own folder comes first
try present "$shared" "$folder/both:$folder/misplaced"
try absent "$shared" "$folder/misplaced"
try absent "$static" "$folder/alone"
try present "$static" "$folder/values"
