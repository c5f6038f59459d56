"""torchvision, also if its compiled operators were built for another torch.

PyPI's torchvision is a CUDA build, whose compiled operators do not load beside a CPU build of torch; the import then
fails because the schema of `nms` is unknown. Declaring two schemas lets it succeed: datasets, models and transforms.v2
work; compiled operators and `torchvision.io` do not. A build that matches its torch is left unchanged.

Import torchvision from this module, and before torchmetrics, which imports it too.
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
