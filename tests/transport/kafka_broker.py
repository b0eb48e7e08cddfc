"""A real Kafka broker on this machine, of the jars that PySpark's Ivy finds by name."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark

PACKAGE = "org.apache.kafka:kafka_2.13:4.3.1"
CLUSTER_ID = "thetastreamtesting0000"
LIMIT_SECONDS = 120.0


def jars(folder: Path) -> str:
    """The classpath of a broker; AssertionError if a jar cannot be found."""
    script = folder / "nothing.py"
    script.write_text("")
    home = Path(pyspark.__file__).parent
    done = subprocess.run(
        [
            str(home / "bin" / "spark-submit"),
            *("--master", "local[1]", "--packages", PACKAGE),
            *("--conf", f"spark.jars.ivy={folder / 'ivy'}"),
            str(script),
        ],
        env=os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found = sorted((folder / "ivy" / "jars").glob("*.jar"))
    assert any("kafka_2.13" in path.name for path in found), (
        f"the jars of {PACKAGE} cannot be resolved; this test needs a Maven repository that"
        f" PySpark's Ivy reaches.\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
    )
    # Ivy leaves out what Spark itself has.
    scala = sorted((home / "jars").glob("scala-library*.jar"))
    return ":".join(map(str, [*found, *scala]))


def free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return ports


class Broker:
    """One process that is broker and controller; it keeps its port and its messages."""

    def __init__(self, classpath: str, folder: Path) -> None:
        self._classpath = classpath
        self._folder = folder
        self._file = folder / "server.properties"
        port, control = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{control}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(folder / "messages"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        made = self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID)
        said = made.communicate(timeout=LIMIT_SECONDS)[0]
        assert made.returncode == 0, said[-3000:]
        self._running: subprocess.Popen[str] | None = None

    def _java(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        where = ["-c", str(self._file)] if arguments else [str(self._file)]
        return subprocess.Popen(
            ["java", "-Xmx512m", "-cp", self._classpath, name, *arguments, *where],
            stdout=subprocess.PIPE if arguments else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start(self) -> None:
        """Returns when the broker takes connections."""
        self._running = self._java("kafka.Kafka")
        host, port = self.bootstrap.split(":")
        end = time.monotonic() + LIMIT_SECONDS
        while True:
            assert self._running.poll() is None, "the broker has ended"
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < end, "the broker does not take connections"
                time.sleep(0.2)

    def end(self, number: int = signal.SIGKILL) -> None:
        """Ends the broker, if it runs."""
        if self._running is not None:
            self._running.send_signal(number)
            self._running.wait(LIMIT_SECONDS)
            self._running = None
