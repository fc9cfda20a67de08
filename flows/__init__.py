"""Prefect flows: when and in what order. Run from the repository root, for example `python -m flows.retrain`.

Prefect reads its environment when it is first imported, so what holds for all flows is set here, before that: its files
stay inside the project, nothing phones home, and a loaded machine gets time to start a server. A value that is already
set is left alone.
"""

import os
from pathlib import Path

SETTINGS = {
    "PREFECT_HOME": str(Path(__file__).parents[1] / ".prefect"),
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # slots that a killed flow held are freed after a restart of the server too
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
}

for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)

HOME = Path(os.environ["PREFECT_HOME"])
