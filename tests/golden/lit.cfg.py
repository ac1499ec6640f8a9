# The golden texts through the command line: `tessera opt FILE --pass=... | FileCheck FILE`, as their RUN lines say.
# By hand:  .venv/bin/lit -v -D tools=build/bin tests/golden
import os

import lit.formats

config.name = "tessera"
config.suffixes = [".graph", ".loop", ".program"]
config.test_format = lit.formats.ShTest(execute_external=False)
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = lit_config.params.get("out", "/tmp/tessera-lit")
folders = [os.path.abspath(lit_config.params["tools"]), lit_config.params.get("llvm", "/usr/lib/llvm-19/bin")]
config.environment["PATH"] = os.pathsep.join(folders + [os.environ["PATH"]])
for variable in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]
