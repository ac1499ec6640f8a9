#!/usr/bin/env bash
# Builds the project, compiles the three networks of PP-OCR, reads the text in a picture, and puts text and latency
# beside ONNX Runtime's. The picture with the lines outlined, and beside it the text, is written to out/text.png.
#
#   scripts/demo.sh [PHOTO.png|PHOTO.jpg]      default: examples/text.png
set -euo pipefail
picture=${1:-}
case $picture in -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
[[ -z $picture ]] || picture=$(realpath -m -- "$picture")  # it was named from where the caller stands
cd "$(dirname "$0")/.."
picture=${picture:-examples/text.png}
[[ -f $picture ]] || { echo "demo: there is no file '$picture'" >&2; exit 1; }

scripts/build.sh release tessera text_detect text_read
folder=out/reader
stages=out/reader_stages
mkdir -p "$folder"
rm -rf "$stages"

# compile MODEL SHAPE MODULE, unless that was done before with this compiler.
compile() {
  local model=$1 shape=$2 module=$3
  if [[ $module -nt build/bin/tessera && $(cat "$module.shape" 2>/dev/null) == "$shape" ]]; then
    echo "$module is there"
  else
    build/bin/tessera compile "$model" -o "$module" --shape "x=$shape"
    echo "$shape" >"$module.shape"
  fi
}

# Shapes are fixed at compile time: the detector's is this picture's, and each line goes to the narrowest recogniser that
# it fits into.
shape=$(build/bin/text_detect --print-shape "$picture")
echo
echo "== compile the detector for an input of $shape, the classifier, and the recogniser for lines of four widths"
compile .deps/ppocr/ch_PP-OCRv4_det_infer.onnx "$shape" "$folder/detector.so"
compile .deps/ppocr/ch_ppocr_mobile_v2.0_cls_infer.onnx 1x3x48x192 "$folder/classifier.so"
for width in 320 480 640 960; do
  compile .deps/ppocr/ch_PP-OCRv4_rec_infer.onnx "1x3x48x$width" "$folder/recogniser_$width.so"
done
cp .deps/ppocr/characters.txt "$folder"

echo
echo "== read $picture"
build/bin/text_read "$folder" "$picture" --out out/text.png --save-stages "$stages"

echo
echo "== beside ONNX Runtime, in alternating rounds on the same inputs"
.venv/bin/python scripts/page_beside_ort.py .deps/ppocr "$stages" "$folder/characters.txt" -- \
  build/bin/text_read "$folder" "$picture" --json --threads '{threads}' --repeat '{repeat}'

echo
echo "the picture with its text beside it: out/text.png"
