"""torchvision, also where its compiled operators were built for another torch.

PyPI's torchvision is a CUDA build. With a CPU build of torch its compiled operators do not load, and the import fails
because the schema of `nms` is unknown. Declaring the two schemas lets it succeed: datasets, models and transforms.v2
are plain Python and work; compiled operators and `torchvision.io` do not (images are read with PIL). A build that
matches its torch imports at the first try and is left alone.

Import torchvision from here, and before torchmetrics, which imports it too.
"""

import torch

try:
    import torchvision
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    # The schemas live as long as this object does.
    _SCHEMAS = torch.library.Library("torchvision", "DEF")
    _SCHEMAS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _SCHEMAS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

__all__ = ["torchvision"]
