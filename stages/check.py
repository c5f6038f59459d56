"""Check every setting, and that the device is there, before any work; its output never changes."""

import subprocess

from attnknn.core.files import atomic_file
from pipeline.check import check as check_settings
from pipeline.check import flatten, shadowed
from pipeline.run import Run, main
from pipeline.settings import PARAMS, parse


def check(run: Run) -> None:
    settings = check_settings()
    if run.params.device.startswith("cuda"):
        _ = run.device
    committed = subprocess.run(["git", "show", f"HEAD:./{PARAMS}"], capture_output=True)
    if committed.returncode == 0:
        before, now = (flatten(parse(text, PARAMS)) for text in (committed.stdout, PARAMS.read_bytes()))
        changed = {key: value for key, value in now.items() if before.get(key) != value}
        for line in shadowed(changed, {name: params.raw for name, params in settings.items()}):
            print(f"warning: {line}")
    with atomic_file(run.path("data/params_checked")) as draft:
        # Always the same: no other stage reruns because a setting was checked.
        draft.write_text("settings were checked\n")


if __name__ == "__main__":
    main(check)
