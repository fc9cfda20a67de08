"""Profiles as they are listed, and folders that are no clone of the repository."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from judgefree.cli import app
from judgefree.profiles import available, list_profiles

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("columns", [80, 200])
def test_each_profile_is_listed_with_a_whole_sentence(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    listed: dict[str, str] = {}
    starts = set()
    for line in list_profiles(ROOT).splitlines():
        assert len(line) <= columns
        name, said = line[:27].split(" ", 1)[0], line.lstrip().split("  ")[-1].strip()
        name = name or list(listed)[-1]
        listed[name] = f"{listed.get(name, '')} {said}".strip()
        starts.add(line.rindex(said))
    assert list(listed) == [path.stem for path in available(ROOT)] and len(starts) == 1
    assert all(said.endswith(".") for said in listed.values())
    assert listed["save-qwen3-4b"].endswith("(Table 8), beside GRPO with the frozen reward model.")


@pytest.mark.parametrize("command", ["check", "profile", "profile tiny", "doctor", "doctor --fix", "runs"])
def test_a_folder_that_is_no_clone_is_told_so(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code and "is no project of judgefree" in str(result.exception)
    assert "run the command in a clone of the repository" in str(result.exception)


def test_a_clone_without_settings_is_told_to_take_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").touch()
    result = CliRunner().invoke(app, ["check"])
    assert str(result.exception).endswith("fix: run `judgefree profile tiny` to write one")


def test_a_profile_without_a_comment_is_listed_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").touch()
    assert list_profiles(tmp_path) == ""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "own.yaml").write_text("threads: 1\n")
    assert list_profiles(tmp_path) == "own"
