"""The site: every part of the registry has a page, its numbers are computed, links are checked, nothing is fetched."""

from __future__ import annotations

import re
from pathlib import Path

import build_site
import pytest
import site_lists
import site_pages
from rlm_lab.convention_card import card

from rlm_plugins.registry import Registry


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


def test_every_algorithm_part_and_finding_has_a_page_with_what_it_is(registry: Registry) -> None:
    pages = build_site.generated_pages(registry)
    for part in [*site_pages.algorithms_of(registry), *site_pages.parts_of(registry)]:
        assert f"# {part.name}\n" in pages[site_pages.place(part)]
    for rule in site_lists.RULES:
        assert rule.described()["remedy"].split("`")[0] in pages[f"book/findings/{rule.name}.md"].replace("\\", "")
    assert "ℓ = −min(min(w, δ) Â, clip(w, 1−ε, 1+ε_high) Â)" in pages["book/parts/policy_loss/clip.md"]
    assert "torch.min(unclipped * advantages, clipped * advantages)" in pages["book/parts/policy_loss/clip.md"]


def test_numbers_of_other_libraries_are_those_of_the_card(registry: Registry) -> None:
    page = site_pages.algorithm_pages(registry)["book/algorithms/gspo.md"]
    part = registry.find("rlm_algorithms", "gspo", where="algorithm")
    for line in card(part, registry)["conventions"]:
        values = " | ".join(f"{line[key]:.4f}" for key in ("winner", "loss", "gradient"))
        assert f"| `{line['name']}` | {values} |" in page


def test_the_index_of_papers_names_what_implements_them(registry: Registry) -> None:
    page = site_lists.list_pages(registry)["book/papers.md"]
    (row,) = [line for line in page.splitlines() if "abs/2507.18071" in line]
    assert "book/algorithms/gspo.md" in row


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("../rlm_plugins/builtin", "/source/rlm_plugins/builtin.md"),
        ("../recipes/papers", "/recipes/papers/README.md"),
        ("reference.py", "/source/docs/reference.py.md"),
        ("python.md#another-algorithm", "python.md#another-algorithm"),
        ("https://example.org/y.py", "https://example.org/y.py"),
    ],
)
def test_links_to_folders_and_source_files_lead_to_pages(target: str, expected: str) -> None:
    in_code = f"```\n[b]({target})\n```"
    text = f"[a]({target})\n{in_code}"
    assert build_site.led_to_pages("docs/algorithms.md", text) == f"[a]({expected})\n{in_code}"


def test_a_broken_link_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_site, "BUILD", tmp_path)
    monkeypatch.setattr(build_site, "stage", lambda pages: {"README.md": "# x\n\n[y](nope.md)"})
    assert build_site.main() == 1
    assert "link 'nope.md'" in capsys.readouterr().out


@pytest.mark.full
def test_the_site_is_built_and_fetches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_site, "BUILD", tmp_path)
    assert build_site.main() == 0
    pages = list((tmp_path / "html").rglob("*.html"))
    fetched = r"<(?:script|img|iframe)[^>]+src=\"https?:|<link[^>]+(?:stylesheet|preconnect)[^>]+https?:"
    assert len(pages) > 500
    assert [page for page in pages if re.search(fetched, page.read_text(encoding="utf-8"))] == []
