"""Control directories that cannot be written, or that are none."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.steering.histories import KINDS, batches
from tests.steering.test_restarts import join_of
from thetastream.api.control import Control
from thetastream.errors import ControlError
from thetastream.steering.directory import Directory
from thetastream.steering.edits import Scale
from thetastream.steering.files import LocalFiles, NamedFiles
from thetastream.testing import expected_rows, multiset
from thetastream.testing.inprocess import rows_in
from thetastream.testing.steered import MemoryFiles, Steering


class ReadOnly(MemoryFiles):
    """Files that can be read, until `closed`, and then not be changed."""

    closed = False

    def _refuse(self) -> None:
        if self.closed:
            raise OSError(errno.EROFS, "secret://user:password@host")

    def write(self, name: str, data: bytes | memoryview) -> None:
        self._refuse()
        super().write(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self._refuse()
        return super().create(name, data)

    def remove(self, name: str) -> None:
        self._refuse()
        super().remove(name)


def test_a_directory_that_becomes_read_only_is_named_and_the_query_goes_on() -> None:
    kind = KINDS["hash"]
    script = batches(np.random.default_rng(3), 2, 12, 20)
    files = ReadOnly()
    live = Steering(join_of(kind, script), files=NamedFiles(files, "the directory"))
    rows = rows_in(live.batch(script[0]))
    live.ask(Scale(units=3))
    files.closed = True
    message = "the control directory the directory cannot be written"
    for step in script[1:5]:
        rows += rows_in(live.batch(step))
        assert live.loop.problem == message
    assert live.version.version == 0
    for call in (
        lambda: live.ask(Scale(units=4)),
        lambda: live.directory.allow(3),
        lambda: live.directory.export("0" * 64, memoryview(b"rows")),
    ):
        with pytest.raises(ControlError, match=message) as refused:
            call()
        assert "Read-only file system" in refused.value.detail
        assert "permissions" in refused.value.hint
        assert "password" not in str(refused.value)
    files.closed = False
    # The request that was waiting is carried out when that is possible again.
    for step in script[5:]:
        rows += rows_in(live.batch(step))
    assert not live.loop.problem
    assert live.version.joins[0].active(0) == (0, 1, 2)
    times = {"r": "t", "s": "t"}
    expected = expected_rows(kind.predicate, script, within=kind.within, time=times)
    assert multiset(rows) == multiset(expected)


def test_a_path_that_cannot_be_a_directory_is_named(tmp_path: Path) -> None:
    """Whoever asks: the join when it is built, and programs that want a change."""
    file = tmp_path / "file"
    file.write_text("no directory")
    script = batches(np.random.default_rng(3), 2, 1, 20)
    tree = join_of(KINDS["hash"], script).plan.tree
    for path in (file, file / "below"):
        directory = Directory(str(path))
        for call in (lambda: directory.open(tree, 4, 0.0), directory.require):  # noqa: B023
            with pytest.raises(ControlError, match=f"{path} cannot be read") as refused:
                call()
            assert "Not a directory" in refused.value.detail


@pytest.fixture
def _as_a_user() -> Iterator[None]:
    """Permissions do not bind the superuser."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


@pytest.mark.usefixtures("_as_a_user")
def test_a_user_who_may_only_read_is_told_so() -> None:
    script = batches(np.random.default_rng(3), 2, 1, 20)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "control")
        Steering(join_of(KINDS["hash"], script), files=LocalFiles(root))
        folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
        for path in folders:
            path.chmod(0o500)
        control = Control(str(root))
        try:
            assert control.status().version == 0
            with pytest.raises(ControlError, match=f"{root} cannot be written") as refused:
                control.scale(2, wait=None)
        finally:
            for path in folders:
                path.chmod(0o700)
    assert "Permission denied" in refused.value.detail
