"""A script runs as it would without us, with our code in those of its processes that use torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import et_replay
from et_replay.errors import UsageError
from et_replay.script.launch import run_script

PACKAGE = Path(et_replay.__file__).parent


@pytest.fixture
def torch_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the path that holds a torch of one line: the real one takes seconds."""
    folder = tmp_path / "path"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text("from torch.part import value\n")
    (folder / "torch/part.py").write_text("value = 7\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.fixture
def role(torch_path: Path) -> str:
    """Return a role that tells its settings and whether torch is there."""
    (torch_path / "sitecustomize.py").write_text(
        "import types, sys, json\n"
        "role = types.ModuleType('et_replay.tell')\n"
        "role.begin = lambda settings: print('began', json.dumps(settings), "
        "sys.modules['torch'].value)\n"
        "sys.modules['et_replay.tell'] = role\n"
    )
    return "tell"


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


def test_a_role_begins_when_torch_has_been_imported(
    tmp_path: Path, role: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "import sys\nprint(sys.argv[1:])\nimport torch\nprint(torch.value)\n"
    path = script(tmp_path, text)
    assert run_script([path, "a b"], role, {"number": 3}).exit_code == 0
    settings = json.dumps({"number": 3, "role": "tell", "words": [path, "a b"]})
    assert capfd.readouterr().out.splitlines() == ["['a b']", f"began {settings} 7", "7"]


def test_who_only_looks_for_torch_begins_no_role(
    tmp_path: Path, role: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        "import importlib.util\n"
        "print(importlib.util.find_spec('torch').origin.endswith('__init__.py'))\n"
        "import torch\n"
        "print(type(torch.__loader__).__name__, vars(torch.__loader__).get('exec_module'))\n"
    )
    assert run_script([script(tmp_path, text)], role, {}).exit_code == 0
    seen, began, loader = capfd.readouterr().out.splitlines()
    assert seen == "True"
    assert began.startswith("began")
    assert loader == "SourceFileLoader None"


def test_a_child_of_the_script_has_the_role_too(
    tmp_path: Path, role: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import torch'])\n"
    assert run_script([script(tmp_path, text)], role, {}).exit_code == 0
    assert capfd.readouterr().out.startswith("began")


def test_the_path_of_the_script_is_its_own(
    tmp_path: Path, torch_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "import sys\nprint([p for p in sys.path if 'startup' in p], sys.modules.keys())\n"
    assert run_script([script(tmp_path, text)], "none", {}).exit_code == 0
    out = capfd.readouterr().out
    assert out.startswith("[] ")
    assert "'sitecustomize'" not in out
    assert "'json'" not in out


def test_a_failing_role_is_one_line_and_the_script_goes_on(
    tmp_path: Path, torch_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "import torch\nprint('went on')\n"
    assert run_script([script(tmp_path, text)], "missing", {}).exit_code == 0
    out, err = capfd.readouterr()
    assert out == "went on\n"
    assert err == (
        "et_replay: warning: the script runs without et_replay: ModuleNotFoundError: No module"
        " named 'et_replay.missing'\n"
    )


def test_a_failing_sitecustomize_of_the_users_fails_as_ever(
    tmp_path: Path, torch_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (torch_path / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    assert run_script([script(tmp_path, "print('went on')\n")], "none", {}).exit_code == 0
    out, err = capfd.readouterr()
    assert out == "went on\n"
    assert "Error in sitecustomize" in err
    assert "ValueError: mine" in err


def test_a_module_is_run_by_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script(tmp_path, "import sys\nprint(sys.executable)\n")
    monkeypatch.chdir(tmp_path)
    assert run_script(["-m", "script"], "none", {}).exit_code == 0
    assert capfd.readouterr().out == f"{sys.executable}\n"


def test_a_program_beside_this_python_comes_before_the_path(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = Path(sys.executable).name
    path = script(tmp_path, "import sys\nprint(sys.prefix)\n")
    assert run_script([name, path], "none", {}).exit_code == 0
    assert capfd.readouterr().out == f"{sys.prefix}\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Expected a command to run after --, such as -- python train.py."),
        (["no-such-program"], "but there is no program no-such-program."),
    ],
)
def test_nothing_to_run_is_a_usage_error(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        run_script(words, "none", {})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("raise SystemExit(5)", 5),
        ("raise ValueError", 1),
        ("import os; os.kill(os.getpid(), 9)", 137),
    ],
)
def test_the_exit_code_is_the_scripts(tmp_path: Path, text: str, code: int) -> None:
    assert run_script([script(tmp_path, text)], "none", {}).exit_code == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_script(tmp_path: Path, number: signal.Signals) -> None:
    text = (
        "import signal, sys, time\n"
        "def end(number, frame):\n    print('got', number, flush=True)\n    sys.exit(3)\n"
        f"signal.signal({int(number)}, end)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    launcher = (
        "import sys\nfrom et_replay.script.launch import run_script\n"
        "sys.exit(run_script(sys.argv[1:], 'none', {}).exit_code)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", launcher, script(tmp_path, text)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # without a terminal that would tell all
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(number)
    assert process.communicate(timeout=30)[0] == f"got {int(number)}\n"
    assert process.returncode == 3
