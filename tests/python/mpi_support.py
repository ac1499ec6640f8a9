"""What tests of several processes need of MPI."""
import os
import pathlib
import shutil

import cli_support

ROOT = pathlib.Path(__file__).resolve().parents[2]
MPIRUN = shutil.which("mpirun", path=f"{ROOT / '.venv/bin'}:{os.environ.get('PATH', '')}")


def why_no_mpi():
    """Why processes cannot reach each other; None: they can."""
    if not MPIRUN:
        return "there is no mpirun: scripts/setup.sh installs it"
    library = pathlib.Path(cli_support.TESSERA).resolve().parents[1] / "lib/libtessera_mpi.so.0"
    return None if library.exists() else "the build found no MPI: libtessera_mpi is not there"
