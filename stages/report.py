"""Write the report from metrics and tables."""

import gc
from pathlib import Path

from attnknn.report.page import write_report
from pipeline.revision import revision
from pipeline.run import Run, main
from pipeline.settings import report_settings


def report(run: Run) -> None:
    gc.set_threshold(100_000)  # figures are many small objects; the default collects after every 700
    p = run.params
    write_report(Path(), run.path("report"), p.datasets, p.seeds, report_settings(), revision(), workers=p.threads)


if __name__ == "__main__":
    main(report)
