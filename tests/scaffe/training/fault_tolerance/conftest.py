"""What the tests of this room compare with."""

import pytest

from tests.scaffe.training.fault_tolerance.runs import make, train, weights


@pytest.fixture(scope="package")
def undisturbed(tmp_path_factory, databases):
    folder = make(tmp_path_factory.mktemp("undisturbed"), databases, "")
    result = train(folder)
    assert result.returncode == 0, result.stderr
    return weights(folder)
