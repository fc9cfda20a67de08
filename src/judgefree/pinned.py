"""Where something comes from that the parameters name: a local folder, or a repository of the hub at a commit."""

import re


def is_folder(identity: str) -> bool:
    """Whether a data set's id names a local folder and not a repository of the hub."""
    return identity.startswith(("/", "./", "../"))


def require_commit(key: str, identity: str, revision: str | None) -> None:
    """A repository of the hub is read at a commit; a folder has none to name."""
    if not is_folder(identity) and not re.fullmatch(r"[0-9a-f]{40}", revision or ""):
        raise ValueError(
            f"{key}: {revision or 'nothing'} is no full commit id of {identity}; give its 40 hexadecimal digits, since a "
            "branch may move, or let the id be a folder (./... or /...), which needs none"
        )
