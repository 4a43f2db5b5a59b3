"""The page in a real headless browser: drawing, keyboard operation, and hostile completions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headless_browser import HeadlessBrowser, browser_path
from rlm_view.page import page_of

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(browser_path() is None, reason="no Chromium is installed (apt-get install chromium)"),
]
HOSTILE = [
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "\u202eevil\u2066",
    "\x00\x1b[2J\t",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\u2028\u2029 line",
]


COLORS = """
[...document.querySelector('.completion').querySelectorAll('.token')].map((x) => getComputedStyle(x).backgroundColor)
"""
NAMELESS = """
[...document.querySelectorAll('button, select, input')]
  .filter((x) => !(x.textContent.trim() || x.ariaLabel || x.closest('label'))).length
"""
CONTRASTS = """
(() => {
  const linear = (x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((x) => linear(x / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll('h1, .note, figcaption')].map((x) => {
    const own = light(getComputedStyle(x).color);
    return (Math.max(own, back) + 0.05) / (Math.min(own, back) + 0.05);
  });
})()
"""


def completion(group: int, words: list[str], reward: float) -> dict[str, Any]:
    count = len(words)
    return {
        "group": group,
        "prompt": f"prompt {group} {HOSTILE[1]}",
        "reward": reward,
        "columns": {HOSTILE[1]: HOSTILE[0], "answer": 42},
        "rewards": {"accuracy": reward, HOSTILE[0]: 0.5},
        "advantage": reward - 0.5,
        "truncated": reward == 0,
        "tokens": words,
        "mask": "0" + "1" * (count - 1),
        "turns": [1],
        "values": {
            "share of the gradient": [(i - 2) * (reward - 0.5) for i in range(count)],
            "entropy": [0.1 * i for i in range(count)],
            "ratio": [1.0] * (count - 1) + [None],
        },
    }


def run_data(name: str) -> dict[str, Any]:
    rows = [completion(i // 4, [*HOSTILE, f"word {i}"], (i % 4) / 3) for i in range(16)]
    quantities = list(rows[0]["values"])
    capsules = [
        {
            "step": step,
            "stage": "01-grpo",
            "loss": 0.1,
            "fault": HOSTILE[0],
            "note": HOSTILE[0],
            "quantities": quantities,
            "completions": rows,
        }
        for step in (10, 20)
    ]
    curves = {
        "reward": [[i, i / 40, None, None] for i in range(40)],
        "held_out/accuracy": [[0, 0.1, 0.0, 0.2], [40, 0.9, 0.8, 1.0]],
        HOSTILE[1]: [[1, 1.0, None, None]],
    }
    finding = {"name": "tied_rewards", "step": 1, "until": 9, "evidence": HOSTILE[0], "remedy": HOSTILE[1]}
    sample = {
        "stage": "01-grpo",
        "step": 3,
        "prompt": HOSTILE[0],
        "completion": HOSTILE[1],
        "rewards": {},
        "reward": 1.0,
        "advantage": 0.0,
    }
    return {
        "name": name,
        "summary": {"metric": "accuracy", "before": 0.1, "after": 0.9, "interval": [0.8, 1.0]},
        "settings": {"name": name, "trainer.seed": 1, "evil": HOSTILE[0]},
        "given": ["trainer.seed"],
        "stages": [{"name": "01-grpo", "curves": curves}],
        "findings": [{"stage": "01-grpo", "steps": 40, "findings": [finding]}],
        "samples": [sample],
        "capsules": capsules,
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[HeadlessBrowser]:
    path = browser_path()
    assert path is not None
    with HeadlessBrowser(path) as started:
        yield started


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "view.html"
    file.write_text(page_of({"runs": [run_data("first " + HOSTILE[0]), run_data("second")]}))
    return file


@pytest.mark.parametrize("tab", ["Curves", "Steps", "Prompts", "Settings"])
@pytest.mark.parametrize("dark", [False, True])
def test_tab_is_drawn_without_an_error(browser: HeadlessBrowser, page: Path, tab: str, dark: bool) -> None:
    browser.events.clear()
    browser.open(page, tab, dark=dark)
    assert browser.evaluate("document.querySelector('[role=tab][aria-selected=true]').textContent") == tab
    assert browser.evaluate("document.getElementById('panel').textContent.length") > 100
    assert browser.evaluate("window.pwned") is None
    assert browser.evaluate("document.querySelectorAll('img, iframe, object, a[href^=javascript]').length") == 0
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    assert browser.problems() == []


def test_text_of_a_token_is_shown_by_its_code(browser: HeadlessBrowser, page: Path) -> None:
    browser.open(page, "Steps")
    shown = browser.evaluate(
        "[...document.querySelector('.completion').querySelectorAll('.token')].map(x => x.textContent)"
    )
    assert shown[:2] == HOSTILE[:2]
    assert shown[2] == "⟨U+202E⟩evil⟨U+2066⟩"
    assert shown[3] == "⟨U+0000⟩⟨U+001B⟩[2J⇥"
    assert "\u202e" not in browser.evaluate("document.getElementById('panel').textContent")


def test_colors_follow_the_sign_and_size(browser: HeadlessBrowser, page: Path) -> None:
    browser.open(page, "Steps/share of the gradient".replace(" ", "%20"))
    colors = browser.evaluate(COLORS)
    assert colors[2] == "rgba(0, 0, 0, 0)", "no gradient, no color"
    negative, positive = colors[0], colors[-1]
    assert negative.split(",")[0] != positive.split(",")[0]
    alphas = [float(color.rstrip(")").split(",")[3]) for color in colors[3:]]
    assert alphas == sorted(alphas)
    assert alphas[0] < alphas[-1]


def test_what_matters_comes_first(browser: HeadlessBrowser, page: Path) -> None:
    """Held-out scores before rewards, groups with a gradient, the answer below its prompt, settings of the recipe."""
    browser.open(page)
    assert browser.evaluate("document.querySelector('figure').dataset.metric") == "held_out/accuracy"
    ticks = browser.evaluate("[...document.querySelectorAll('figure:first-of-type text')].map(x => x.textContent)")
    assert ticks == ["0 %", "50 %", "100 %", "0", "40"]
    browser.open(page, "Steps")
    assert browser.evaluate("document.querySelectorAll('main select')[2].value") == "with a gradient"
    assert browser.evaluate("document.querySelector('.column').textContent") == "answer 42"
    browser.open(page, "Settings")
    assert browser.evaluate("document.querySelectorAll('table')[1].textContent").endswith("trainer.seed11")


def test_keyboard_alone(browser: HeadlessBrowser, page: Path) -> None:
    browser.open(page)
    browser.evaluate("document.querySelector('[role=tab]').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate("document.activeElement.textContent") == "Steps"
    browser.evaluate("document.querySelector('.completion').focus()")
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    details = browser.evaluate("document.getElementById('details').textContent")
    assert "token 1:" in details
    assert "share of the gradient" in details
    browser.press("ArrowLeft")
    assert "token 0, not trained on:" in browser.evaluate("document.getElementById('details').textContent")
    browser.evaluate("document.querySelector('[aria-label=\"Previous step\"]').click()")
    assert browser.evaluate("document.querySelector('main select').value") == "10"


def test_accessible_names_and_contrast(browser: HeadlessBrowser, page: Path) -> None:
    """Every control has a name, every picture a label, and text has a contrast of 4.5 on its background."""
    for tab in ("Curves", "Steps", "Prompts", "Settings"):
        browser.open(page, tab)
        nameless = browser.evaluate(NAMELESS)
        assert nameless == 0
        assert browser.evaluate("[...document.querySelectorAll('svg')].every(x => x.getAttribute('aria-label'))")
    for dark in (False, True):
        browser.open(page, dark=dark)
        ratios = browser.evaluate(CONTRASTS)
        assert min(ratios) > 4.5


def test_narrow_screen_has_no_horizontal_scroll(browser: HeadlessBrowser, page: Path) -> None:
    for tab in ("Curves", "Steps", "Prompts", "Settings"):
        browser.open(page, tab, width=420)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 420
