"""PriorBoxClustered: prior boxes of given widths and heights (OpenVINO's fork of SSD).

Formula: that of the operation of this name in OpenVINO, with which OpenCV's DNN module agrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import layer_types
from scaffe.layers.detection.prior_box import PriorBox


@layer_types.register("PriorBoxClustered")
class PriorBoxClustered(PriorBox):
    """Boxes of each ``width`` x ``height``, in pixels, around each position of a feature map.

    Bottoms, top and the other options as of PriorBox; it takes no min_size, max_size or aspect_ratio.
    """

    @staticmethod
    def sizes(p: Any) -> np.ndarray:
        """Width and height in pixels of the boxes at one position: float32 (B, 2).

        Raises:
            LayerError: there is no width, not a height for each, or one is not above 0.
        """
        sides: Sequence[float] = [*p.width, *p.height]
        if not p.width or len(p.width) != len(p.height) or not all(0 < side < np.inf for side in sides):
            raise LayerError(f"needs widths and heights above 0, as many of each, got {list(p.width)} and "
                             f"{list(p.height)}")
        return np.array([p.width, p.height], np.float32).T
