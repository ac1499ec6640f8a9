"""Test data that is not in the repository."""
import os
import pathlib


def find_test_data(relative):
    """`relative` below TESSERA_TEST_DATA, or else below the folder `shared` beside the sources; None when in neither."""
    folders = [pathlib.Path(__file__).resolve().parents[3] / "shared"]
    if os.environ.get("TESSERA_TEST_DATA"):
        folders.insert(0, pathlib.Path(os.environ["TESSERA_TEST_DATA"]))
    return next((folder / relative for folder in folders if (folder / relative).exists()), None)
