#!/usr/bin/env bash
# Builds the project, compiles PP-OCR's text detector, finds the lines of text in a picture, and puts the latency beside
# ONNX Runtime's. The picture with the boxes drawn is written to out/text.png.
#
#   scripts/demo.sh [PHOTO.png|PHOTO.jpg]      default: examples/text.png
set -euo pipefail
picture=${1:-}
case $picture in -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
[[ -z $picture ]] || picture=$(realpath -m -- "$picture")  # it was named from where the caller stands
cd "$(dirname "$0")/.."
picture=${picture:-examples/text.png}
[[ -f $picture ]] || { echo "demo: there is no file '$picture'" >&2; exit 1; }

model=.deps/ppocr/ch_PP-OCRv4_det_infer.onnx
module=out/text_detector.so

scripts/build.sh release
mkdir -p out

# Shapes are fixed at compile time, so ask first which one this picture needs.
shape=$(build/bin/text_detect --print-shape "$picture")
echo
echo "== compile $(basename "$model") for an input of $shape"
begin=$(date +%s.%N)
build/bin/tessera compile "$model" -o "$module" --shape "x=$shape"
seconds=$(awk -v begin="$begin" -v end="$(date +%s.%N)" 'BEGIN { printf "%.1f", end - begin }')
megabytes() { awk -v bytes="$(stat -c %s "$1")" 'BEGIN { printf "%.2f MB", bytes / 1e6 }'; }
echo "compiled in $seconds s; module $(megabytes "$module"), code and weights (the ONNX file: $(megabytes "$model"))"

echo
echo "== find text in $picture"
build/bin/text_detect "$module" "$picture" --out out/text.png \
  --save-input out/text_input.npy --save-map out/text_map.npy

echo
echo "== beside ONNX Runtime, in alternating rounds on the same input"
.venv/bin/python scripts/ort_latency.py "$model" --input x=out/text_input.npy --expect out/text_map.npy -- \
  build/bin/text_detect "$module" "$picture" --json --threads '{threads}' --repeat '{repeat}'

echo
echo "the picture with the boxes: out/text.png"
