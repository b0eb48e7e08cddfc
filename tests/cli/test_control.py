"""`thetastream control`, on the directory of a join that runs in this process."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.steering.scene import Scene
from thetastream.cli import completion
from thetastream.cli import control as command
from thetastream.cli.control import groups_in, units_in
from thetastream.cli.main import DONE, FAILED, NO_SPARK, OTHER_QUERY, WRONG, main, parser
from thetastream.errors import RequestError


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A query that runs on while a command waits for it."""
    found = Scene(tmp_path / "control")
    found.feed(2)
    # Not the standard library's own: other threads sleep, too.
    monkeypatch.setattr("thetastream.cli.control.sleep", found.poll)
    monkeypatch.setattr("thetastream.api.control.sleep", found.poll)
    return found


@pytest.fixture
def run(scene: Scene, capsys: pytest.CaptureFixture[str]) -> Any:
    """A command's exit code, its output and its errors."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["control", scene.path, *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


# -- to look --------------------------------------------------------------------------------------


def test_status(run: Any) -> None:
    code, out, _ = run("status")
    assert code == DONE
    assert out.startswith("Routing tables: version 0, settled\n")


def test_status_for_machines(run: Any) -> None:
    code, out, _ = run("status", "--json")
    found = json.loads(out)
    assert code == DONE
    assert set(found) == {
        *("path", "version", "step", "settled", "change", "by", "why", "max_units", "streams"),
        *("draining", "waiting", "batch", "at", "confirmed", "problem", "samples"),
        *("hot", "balance"),
    }
    assert found["streams"][0] == {
        "stream": "r",
        "join": 0,
        "units": [0, 1],
        "groups": {"0": 2520, "1": 2520},
    }
    assert (found["settled"], found["batch"], len(found["samples"])) == (True, 2, 2)
    assert set(found["samples"][0]["loads"]) == {"0", "1"}


def test_history(run: Any) -> None:
    assert run("scale", "3", "--why", "more load")[0] == DONE
    assert run("watch", "--until-settled")[0] == DONE
    code, out, _ = run("history")
    assert code == DONE
    assert "more load" in out
    found = json.loads(run("history", "--json")[1])
    assert [one["change"] for one in found["changes"]] == [0, 1]
    last = found["changes"][-1]
    assert (last["by"], last["what"]) == ("hand", "scale to 3 units")
    assert last["units"] == {"r": 3, "s": 3}
    assert last["seconds"] >= last["drained"]


def test_plots(run: Any, tmp_path: Path) -> None:
    for action in ("status", "history"):
        file = tmp_path / f"{action}.svg"
        assert run(action, "--plot", str(file))[0] == DONE
        assert "<svg" in file.read_text()
    code, _, errors = run("status", "--plot", str(tmp_path / "plot.nothing"))
    assert code == WRONG
    assert ".svg, .png or .pdf" in errors
    assert run("status", "--plot", str(tmp_path / "no" / "plot.svg"))[0] == WRONG


def test_watch_ends_when_all_is_settled(run: Any) -> None:
    assert run("scale", "1", "--no-wait")[0] == DONE
    code, out, _ = run("watch", "--until-settled")
    assert code == DONE
    lines = out.splitlines()
    assert "1 request waits for the next batch" in lines[0]
    assert any("version 1, announce" in line for line in lines)
    assert lines[-1].endswith("units: r 1, s 1")
    assert len(lines) == len(set(lines))


def test_watch_for_machines(run: Any) -> None:
    run("scale", "3", "--no-wait")
    code, out, _ = run("watch", "--until-settled", "--json")
    assert code == DONE
    steps = [json.loads(line)["step"] for line in out.splitlines()]
    assert list(dict.fromkeys(steps)) == ["settled", "announce", "switch", "forget"]
    assert steps[-1] == "settled"
    assert "samples" not in json.loads(out.splitlines()[0])


def test_watch_gives_up(run: Any, scene: Scene) -> None:
    run("scale", "3", "--no-wait")
    code, _, errors = run("watch", "--until-settled", "--timeout", "0")
    assert code == FAILED
    assert "is not done after 0 s" in errors
    assert run("watch", "--timeout", "0")[0] == DONE


def test_ctrl_c_ends_a_watch(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("thetastream.cli.control.sleep", interrupted)
    code, out, _ = run("watch")
    assert code == DONE
    assert len(out.splitlines()) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("has_rich", [True, False])
def test_a_terminal(scene: Scene, monkeypatch: pytest.MonkeyPatch, has_rich: bool) -> None:
    if not has_rich:
        monkeypatch.setitem(sys.modules, "rich.live", None)
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["control", scene.path, "watch", "--until-settled"]) == DONE
    assert ("Routing tables: version 0" in out.getvalue()) is has_rich
    assert "version 0, settled" in out.getvalue()


# -- to ask ---------------------------------------------------------------------------------------


def test_heat_and_cool(run: Any, scene: Scene) -> None:
    code, out, _ = run("heat", "3", "--stream", "r")
    assert code == DONE
    assert "status shows the steps of hot keys" in out
    assert json.loads(run("status", "--json")[1])["hot"][0]["shown"] == "3"
    assert json.loads(run("cool", "3", "--no-wait", "--json")[1])["state"] == "asked"
    scene.feed(6)
    assert [one["step"] for one in json.loads(run("status", "--json")[1])["hot"]] != ["hot"]
    code, _, err = run("cool", "99", "--join", "0")
    assert code == WRONG
    assert "key 99 is not hot" in err
    assert run("heat", "x", "--stream", "r")[0] == WRONG


def test_scale_and_move(run: Any) -> None:
    code, out, _ = run("scale", "r=3", "s=2")
    assert code == DONE
    assert out.startswith("change 1 has begun")
    assert run("watch", "--until-settled")[0] == DONE
    assert json.loads(run("scale", "r=3", "--json")[1])["state"] == "nothing"
    assert "nothing to change" in run("scale", "r=3")[1]
    code, out, _ = run("move", "0", "5-7", "--to", "2", "--stream", "r", "--json")
    assert code == DONE
    assert json.loads(out)["change"] == 2
    run("watch", "--until-settled")
    changes = json.loads(run("history", "--json")[1])["changes"]
    assert changes[2]["what"] == "move 4 groups (0, 5, 6, 7) of r to unit 2"


def test_a_request_that_nobody_waits_for(run: Any) -> None:
    code, out, _ = run("scale", "3", "--no-wait", "--json")
    assert code == DONE
    found = json.loads(out)
    assert (found["state"], found["change"]) == ("asked", None)
    assert "the request is written" in run("scale", "3", "--no-wait")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("scale", "9"), "more than the 4"),
        (("scale", "0"), "not a number of units"),
        (("scale", "many"), "'many' is not a number of units"),
        (("scale", "r=2", "3"), "some not"),
        (("scale", "t=2"), "no stream 't'"),
        (("scale", "3", "--subgroup", "0"), "no subgroups"),
        (("move", "9999", "--to", "0"), "no group 9999"),
        (("move", "x", "--to", "0"), "'x' is not a group"),
        (("move", "9-1", "--to", "0"), "not a range"),
        (("move", "1", "--to", "3"), "unit 3 is not active"),
    ],
)
def test_what_is_refused(run: Any, words: tuple[str, ...], said: str) -> None:
    code, _, errors = run(*words)
    assert code == WRONG
    assert said in errors
    assert "What to do" in errors


def test_a_query_that_does_not_answer(run: Any) -> None:
    code, _, errors = run("scale", "3", "--timeout", "0")
    assert code == FAILED
    assert "has not answered" in errors


@pytest.mark.parametrize("words", [["status"], ["scale", "3"], ["watch"], ["history"]])
def test_what_is_no_control_directory(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["control", str(tmp_path), *words]) == OTHER_QUERY
    assert "is not a control directory" in capsys.readouterr().err
    file = tmp_path / "file"
    file.touch()
    assert main(["control", str(file), *words]) == OTHER_QUERY
    assert "What to do" in capsys.readouterr().err


def test_a_damaged_directory(scene: Scene, run: Any) -> None:
    (scene.root / "control.json").write_text("nonsense")
    assert run("status")[0] == OTHER_QUERY


def test_words() -> None:
    assert units_in(["4"]) == 4
    assert units_in(["a=1", "b=2"]) == {"a": 1, "b": 2}
    assert list(groups_in(["12", "13", "100-102"])) == [12, 13, 100, 101, 102]
    for wrong in (["=4"], ["a="], ["a=x"], ["a=1", "a=2"], ["-1"], [""], ["4", "4"]):
        with pytest.raises(RequestError):
            units_in(wrong)
    for wrong in (["a"], ["1-"], ["-1"], ["1-99999999999"], ["²"]):
        with pytest.raises(RequestError):
            list(groups_in(wrong))


# -- the command itself ---------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["status"], ["history", "--json"], ["scale", "3", "--no-wait"]])
def test_spark_is_not_imported(scene: Scene, words: list[str]) -> None:
    program = (
        "import sys\n"
        "from thetastream.cli.main import main\n"
        f"assert main({['control', scene.path, *words]!r}) == 0\n"
        "found = {'pyspark', 'matplotlib', 'pandas', 'rich'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_a_plot_without_matplotlib(scene: Scene, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from thetastream.cli.main import main\n"
        f"words = ['control', {scene.path!r}, 'status', '--plot', {str(tmp_path / 'x.svg')!r}]\n"
        "sys.exit(main(words))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == NO_SPARK
    assert "pip install matplotlib" in done.stderr


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["cont"], ["control"]),
        (["control", "rid"], ["rides"]),
        (["control", "rides", "s"], ["status", "scale"]),
        (["control", "rides", "scale", "4", "--dr"], ["--drain"]),
        (["control", "rides", "watch", "--un"], ["--until-settled"]),
    ],
)
def test_the_bash_script_completes(words: list[str], found: list[str], tmp_path: Path) -> None:
    (tmp_path / "rides").mkdir()
    (tmp_path / "rides.toml").touch()
    probe = (
        f"{completion.script(parser(), 'bash')}\n"
        'COMP_WORDS=(thetastream "$@"); COMP_CWORD=$#\n'
        "$(complete -p thetastream | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", probe, "bash", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.split()) == sorted(found)


def test_the_help_says_what_the_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["control", "--help"])
    out = capsys.readouterr().out
    assert "4 the directory is not a control\ndirectory" in out
    assert "2 the command\nline is wrong, or the request was refused" in out


def test_drains_are_those_of_requests() -> None:
    """The command line lists them without importing what reads them."""
    from thetastream.steering.edits import DRAINS

    assert command.DRAINS == DRAINS
