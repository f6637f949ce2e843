"""What Caffe refuses is refused, in one line that says what was wanted."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.refusals import REFUSALS, Refusal
from tests.layers.rig import Rig


@pytest.mark.parametrize("case", REFUSALS, ids=[f"{n} {case.prototxt}" for n, case in enumerate(REFUSALS)])
def test_refused(case: Refusal) -> None:
    first, then = arrays(case.bottoms), arrays(case.then or ())
    if case.then is None and case.backward is None:
        with pytest.raises(LayerError, match=case.said) as refusal:
            Rig(case.prototxt, first, case.n_tops, case.in_place).forward()
    else:
        rig = Rig(case.prototxt, first, case.n_tops)
        rig.forward()
        with pytest.raises(LayerError, match=case.said) as refusal:
            rig.feed(*then) if case.then else rig.backward([np.ones(b.shape) for b in rig.top], case.backward)
    assert "\n" not in str(refusal.value)


def arrays(bottoms: tuple) -> list[np.ndarray]:
    """Data of a Refusal's bottoms."""
    return [np.zeros(b) if isinstance(b, tuple) else b for b in bottoms]
