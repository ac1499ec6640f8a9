#!/usr/bin/env bash
# Makes the folder of a page that reads text in the browser: PP-OCR's recogniser as WebAssembly, and what runs it.
#
#   examples/browser/build.sh [FOLDER]          default: out/browser
#   python3 -m http.server -d out/browser       then open http://localhost:8000
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-out/browser}
mkdir -p "$folder"
${TESSERA:-build/bin/tessera} compile .deps/ppocr/ch_PP-OCRv4_rec_infer.onnx --emit wasm -o "$folder/recogniser.wasm" --shape x=1x3x48x320
cp include/tessera/tessera.mjs examples/browser/*.html examples/browser/*.mjs .deps/ppocr/characters.txt "$folder"
