"""The settings that README shows, put under the headings of the default profile, are accepted."""

import re
from pathlib import Path

from ruamel.yaml import YAML

from judgefree.params import parse_params

ROOT = Path(__file__).parents[1]


def test_what_the_readme_shows_is_accepted() -> None:
    profile = (ROOT / "profiles" / "tiny.yaml").read_text()
    sections = {}
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        for heading, entries in re.findall(r"^(\w+):\n((?:[ #].*\n)+)", block, re.MULTILINE):
            sections[heading] = entries
    assert set(sections) == {"bases", "data", "prompts", "suites", "runs"}
    for heading in ("bases", "prompts", "suites", "runs"):
        profile = profile.replace(f"\n{heading}:\n", f"\n{heading}:\n{sections[heading]}", 1)
    # below the first data set, whose anchor it uses
    profile = profile.replace("\nprompts:\n", f"{sections['data']}\nprompts:\n", 1)
    params = parse_params(YAML(typ="safe", pure=True).load(profile), "README")
    assert params.runs["gsm8k-rlvr"].dataset == "gsm8k" and params.ancestry("gsm8k-rlvr") == ["gsm8k-rlvr", "mine"]
