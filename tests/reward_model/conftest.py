from pathlib import Path

import pytest
import torch
from rewards_world import policy_folder


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return policy_folder(tmp_path_factory.mktemp("policy"))
