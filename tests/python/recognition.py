"""Which composites the compiler recognises in a model. Standard library."""

import collections
import os
import pathlib
import re
import subprocess
import tempfile


def composites_of(tessera, path):
    """How often each composite stands in the graph just before decompose_all takes them apart. ValueError with the message of a
    compile that fails."""
    with tempfile.TemporaryDirectory() as folder:
        temps = pathlib.Path(folder) / "temps"
        command = [tessera, "compile", path, "--emit", "graph", "-o", os.devnull, "-q", "--save-temps", temps]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise ValueError(run.stderr)
        # A pass that changes nothing leaves no file: the last text before the composites are opened counts.
        texts = sorted(temps.glob("*.graph"))
        last = next((i for i, text in enumerate(texts) if text.stem.endswith("decompose_all")), len(texts))
        text = texts[last - 1].read_text()
    return collections.Counter(re.findall(r'= composite\(.*\bname = "(\w+)"', text))
