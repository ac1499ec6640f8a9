"""What the tests of `tessera worker` have in common: the trials in a file of records, and a worker."""

import json
import os
import signal
import subprocess

from tune_support import TESSERA, run


def trials_of(db):
    return json.loads(run("db", "show", db, "--json").stdout)["trials"]


class WorkerProcess:
    """A worker at a port of its own (0: any), in a group of processes of its own."""

    def __init__(self, token, *more, port=0):
        command = [TESSERA, "worker", "--token", str(token), "--listen", f"127.0.0.1:{port}", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.address = f"127.0.0.1:{self.port}"

    def group(self, number):
        os.killpg(self.process.pid, number)

    def end(self):
        self.group(signal.SIGCONT)
        self.process.terminate()
        try:
            code = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.group(signal.SIGKILL)
            code = self.process.wait()
        return code
