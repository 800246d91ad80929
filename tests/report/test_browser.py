"""The page in headless Chromium: no serious finding of axe-core, light and dark, and nothing wider than the window.

Chromium and axe-core are what `.ci/run full` installs when they are missing; without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from circuittest.report.page import page
from tests.helpers.gallery import gallery

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = Path(os.environ.get("CIRCUITTEST_AXE", ROOT / ".ci/.node/node_modules/axe-core/axe.min.js"))
DARK = "--blink-settings=preferredColorScheme=0"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]


def told(folder: Path, script: str, *options: str, width: int = 1280, html: str | None = None) -> Any:
    """What a script at the end of the page says; it calls `tell` with plain data."""
    out = "<script>function tell(x){const p=document.createElement('pre');p.id='told';p.textContent=JSON.stringify(x);document.body.append(p)}</script>"
    file = folder / "page.html"
    file.write_text((html or page(gallery())).replace("</body>", f"{out}{script}</body>"), encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000",
        f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900", *options, "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return json.loads(unescape(re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.S)[1]))


def violations(folder: Path, *options: str, **more: Any) -> list[str]:
    script = (
        f"<script>{AXE.read_text(encoding='utf-8')}</script>"
        "<script>axe.run().then(r => tell(r.violations.map(v => [v.impact, v.id, v.nodes.length, v.nodes[0].html])))</script>"
    )
    found = told(folder, script, *options, **more)
    return [str(one) for one in found if one[0] in ("serious", "critical")]


@pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core (npm install --prefix .ci/.node axe-core)")
@pytest.mark.parametrize("options", [(), (DARK,)], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 500])
def test_axe_finds_nothing_serious(tmp_path, options, width):
    assert violations(tmp_path, *options, width=width) == []


@pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core (npm install --prefix .ci/.node axe-core)")
def test_axe_would_find_something(tmp_path):
    faint = (
        page(gallery()).replace("--soft: #57606a", "--soft: #d0d0d0").replace('<html lang="en">', "<html>")
    )
    found = violations(tmp_path, html=faint)
    assert any("color-contrast" in one for one in found)
    assert any("html-has-lang" in one for one in found)


@pytest.mark.parametrize("width", [1280, 800, 500])
def test_only_drawings_scroll_sideways(tmp_path, width):
    seen = told(
        tmp_path, "<script>tell([innerWidth, document.documentElement.scrollWidth])</script>", width=width
    )
    assert seen[1] <= seen[0]


def test_the_readers_dark_setting_is_followed(tmp_path):
    script = "<script>tell(getComputedStyle(document.body).backgroundColor)</script>"
    assert told(tmp_path, script) == "rgb(255, 255, 255)"
    assert told(tmp_path, script, DARK) == "rgb(18, 22, 27)"


def test_everything_that_opens_or_scrolls_takes_the_keyboard_s_focus(tmp_path):
    script = """<script>
    const all = [...document.querySelectorAll('a, summary, .scroll')]
      .filter(e => e.matches('summary') || !e.closest('details:not([open])'));
    tell(all.filter(e => { e.focus({preventScroll: true}); return document.activeElement !== e })
      .map(e => e.outerHTML.slice(0, 80)))
    </script>"""
    assert told(tmp_path, script) == []
