"""Check all of params.yaml, and that the device is there, before any work; DVC then keeps every earlier result."""

from pathlib import Path

from attnknn.core.files import atomic_file
from stages.params import read_params, run


def main(out: Path) -> None:
    """Write OUT, whose content never changes, so that a change of params reruns nothing by way of it."""
    p = read_params(None, "device", "threads")
    if p.device.startswith("cuda"):
        from attnknn.core.device import use_device

        use_device(p.device, p.threads)
    with atomic_file(out) as draft:
        draft.write_text("params.yaml was checked\n")


if __name__ == "__main__":
    run(main)
