"""What is left of a report that was written before: without its page or a picture it is written again."""

from __future__ import annotations

from pathlib import Path

from tasks.report.stage import STAGE
from tasks.run.manifests import ReportManifest


def test_a_report_whose_page_or_picture_is_gone_does_not_stand(tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "training.png"
    for path in (page, picture):
        path.touch()
    written = ReportManifest(page=page, pictures={"training": picture}, summary="")
    assert STAGE.usable(written)
    for path in (page, picture):
        path.unlink()
        assert not STAGE.usable(written)
        path.touch()
