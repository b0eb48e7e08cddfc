"""Memory of a process and all its descendants, each shared page counted once."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil


def proportional_bytes(pid: int) -> int:
    """The process's proportional set size; its resident set where the kernel gives no other."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        pass
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def tree_bytes(pid: int) -> int:
    """The sum over the process and its descendants: the driver, the JVM, the Python workers."""
    try:
        root = psutil.Process(pid)
        pids = [pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return 0
    return sum(proportional_bytes(one) for one in pids)


class Watch(threading.Thread):
    """Samples a process tree until it is stopped."""

    def __init__(self, pid: int, every: float = 1.0) -> None:
        super().__init__(name="memory", daemon=True)
        self.pid = pid
        self.every = every
        self.samples: list[int] = []
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(self.every):
            self.samples.append(tree_bytes(self.pid))

    def stop(self) -> list[int]:
        """Ends the sampling and gives all samples."""
        self._stop_asked.set()
        self.join()
        return self.samples
