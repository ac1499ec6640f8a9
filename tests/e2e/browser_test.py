#!/usr/bin/env python3
"""examples/browser in headless Chromium: the page loads, and reads what is drawn.

browser_test.py TESSERA [PICTURE.png]: the picture, if given, gets what the browser shows."""

import functools
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES = ("Opening hours", "Tessera 2048", "12:45")


class Server(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript", ".wasm": "application/wasm"}

    def log_message(self, *arguments):
        pass


def main():
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        print("skipped: no Chromium (scripts/setup.sh --browser)")
        return 77
    if not (ROOT / ".deps/ppocr/ch_PP-OCRv4_rec_infer.onnx").exists():
        print("skipped: no .deps/ppocr (scripts/setup.sh)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TESSERA": str(pathlib.Path(sys.argv[1]).resolve())}
        subprocess.run([ROOT / "examples/browser/build.sh", folder], check=True, env=environment)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        failed = 0
        for line in LINES:
            address = f"http://127.0.0.1:{server.server_port}/?text={urllib.parse.quote(line)}"
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000"]
            if len(sys.argv) > 2:
                subprocess.run([*command, "--window-size=800,500", f"--screenshot={pathlib.Path(sys.argv[2]).resolve()}", address],
                               capture_output=True, timeout=120, check=True)
            shown = subprocess.run([*command, "--dump-dom", address], capture_output=True, text=True, timeout=120, check=True).stdout
            read = re.search(r'<output id="read">(.*?)</output>', shown)
            note = re.search(r'<small id="note">(.*?)</small>', shown)
            print(f"{line!r} is read as {read and read[1]!r} ({note and note[1]})")
            # The recogniser leaves out some spaces, in ONNX Runtime too.
            failed += 'data-ready="1"' not in shown or not read or read[1].replace(" ", "") != line.replace(" ", "")
        server.shutdown()
    return failed


if __name__ == "__main__":
    sys.exit(main())
