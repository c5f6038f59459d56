"""The page in headless Chromium: user interactions, layout at two sizes, and data with HTML in it."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from attnknn import AttnKNNClassifier
from attnknn.app.model.model import Model
from attnknn.app.server.app import create_app
from server_fixtures import HOSTILE, pictures, png, running

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH")
expect = playwright.expect
OpenPage = Callable[..., Any]  # kind or folder of a model, fragment of the address, options of `create_app` → page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any, models: dict[str, Path]) -> Iterator[OpenPage]:
    """Open the page of a model; at the end there must be no errors in it, and no request to another host."""
    errors: list[str] = []
    pages: list[Any] = []
    with ExitStack() as stack:

        def open_model(model: str | Path, fragment: str = "", **options: Any) -> Any:
            folder = models[model] if isinstance(model, str) else model
            app = create_app(Model.load(folder), name=f"my {model}", folder=folder, **options)
            home = f"http://127.0.0.1:{stack.enter_context(running(app))}/"
            page = stack.enter_context(browser.new_context(viewport={"width": 1280, "height": 800})).new_page()
            page.set_default_timeout(8000)
            page.home, page.errors, page.questions, page.confirms = home, errors, [], True
            page.answers = ""  # to prompts

            def on_dialog(dialog: Any) -> None:
                page.questions.append(f"{dialog.type}: {dialog.message}")
                dialog.accept(page.answers) if page.confirms else dialog.dismiss()

            def on_request(request: Any) -> None:
                if not request.url.startswith((home, "data:", "blob:")):
                    errors.append(f"request to another host: {request.url}")

            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("dialog", on_dialog)
            page.on("request", on_request)
            pages.append(page)
            page.goto(home + fragment)
            expect(page.locator("#prediction, #cases .card, #issue").first).to_be_visible(timeout=30_000)
            return page

        yield open_model
    assert errors == []
    assert all(question.startswith(("confirm: ", "prompt: ")) for page in pages for question in page.questions)


def answer(page: Any) -> str:
    return page.locator("#prediction").inner_text()


def cards(page: Any) -> Any:
    return page.locator("#neighbours article")


def click(page: Any, *selectors: str) -> None:
    for selector in selectors:
        page.locator(selector).first.click()


def press(page: Any, *keys: str) -> None:
    """Press keys, each after the page has answered the one before."""
    for key in keys:
        page.wait_for_selector("body:not([aria-busy])")
        page.keyboard.press(key)


def shows(page: Any, **texts: Any) -> None:
    """Wait until each element, by its id with _ for -, contains a text, or is visible (True) or hidden (False)."""
    for name, text in texts.items():
        element = expect(page.locator(f"#{name.replace('_', '-')}"))
        element.to_be_visible(visible=text) if isinstance(text, bool) else element.to_contain_text(text)


def see_other_views(page: Any) -> Iterator[str]:
    for view in ("cases", "calibration", "labels"):
        click(page, f"#to-{view}")
        expect(page.locator(f"#{view} .card").first).to_be_visible(timeout=30_000)  # an audit takes some seconds
        yield view


def fits(page: Any) -> bool:
    """Whether nothing is wider than the window or its card, at both sizes."""
    wide = []
    for width in (420, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        boxes = page.locator("html, .card")
        wide += boxes.evaluate_all("boxes => boxes.filter(box => box.scrollWidth > box.clientWidth).map(String)")
    return wide == []


def test_first_answer(open_page: OpenPage, loaded: dict[str, Model]) -> None:
    page, model = open_page("images"), loaded["images"]
    (top,) = model.answers(model.classifier.explain(model.cases.vectors[:1]))
    shows(page, name="my images", prediction=f"{top['prediction']}, {round(100 * top['confidence'])} % sure")
    shows(page, set=re.compile("90 % set: .*the true class of nine in ten held-out rows"))
    expect(page.locator("#set")).not_to_contain_text("before the changes")
    expect(cards(page)).to_have_count(10)
    assert cards(page).first.get_attribute("data-id") == str(top["neighbours"][0]["id"])
    assert page.locator("#neighbours img").first.evaluate("image => image.decode().then(() => image.naturalWidth)") == 8
    click(page, "#more")
    expect(cards(page)).to_have_count(12)


def test_navigation_between_neighbours(open_page: OpenPage) -> None:
    page = open_page("table", "#case/2")
    shows(page, trail="Test case 2")
    row = cards(page).nth(1).get_attribute("data-id")
    cards(page).nth(1).locator("a").focus()
    page.keyboard.press("Enter")
    shows(page, verdict="left out for this answer", trail=f"Row {row}")
    assert page.url.endswith(f"#memory/{row}")
    click(page, "#back")
    shows(page, verdict="its label is")
    assert page.url.endswith("#case/2")
    for move in (page.go_back, page.reload):
        move()
        shows(page, verdict="left out")
    click(page, "#neighbours article a")
    shows(page, back=True)
    click(page, "#forget-this")
    shows(page, changes="1 row forgotten")
    expect(page.locator("#trail strong")).to_have_text(f"Row {row}")


def test_keys_move_between_test_cases_and_not_while_typing(open_page: OpenPage) -> None:
    page = open_page("table", "#case/1")
    press(page, "ArrowRight")
    shows(page, trail="Test case 2")
    press(page, "ArrowLeft", "ArrowLeft", "ArrowLeft")  # there is no case before the first
    shows(page, trail="Test case 0")
    page.get_by_label("size", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(100)
    shows(page, trail="Test case 0")


def test_the_classifier_beside_the_rows_has_a_card(open_page: OpenPage, loaded: dict[str, Model]) -> None:
    page = open_page("table", "#case/0")
    names = {"class means": "Class means", "class shares": "Class shares", "linear classifier": "Linear classifier"}
    answer = page.request.get(f"{page.home}api/case/0").json()["answer"]
    explanation = loaded["table"].classifier.explain(loaded["table"].cases.vectors[:1])
    order = np.argsort(-explanation.null[0])
    assert [one["label"] for one in answer["null"]["classes"]] == list(loaded["table"].classifier.classes_[order])
    np.testing.assert_allclose([one["weight"] for one in answer["null"]["classes"]], explanation.null[0, order])
    shows(page, null=names[answer["null"]["of"]])
    shows(page, null=f"{100 * answer['null']['share']:.1f} % of the votes for {answer['prediction']}")
    expect(page.locator("#null .label")).to_have_count(int((explanation.null[0] >= 0.0005).sum()))


def test_columns_of_query_and_neighbour_stand_beside_each_other(open_page: OpenPage) -> None:
    page = open_page("table", "#case/3")
    first = cards(page).first
    expect(first.locator("thead th")).to_have_text(["", "query", "neighbour"])
    neighbour = page.request.get(f"{page.home}api/case/3").json()["answer"]["neighbours"][0]["example"]["columns"]
    size = first.locator("tbody tr", has=page.get_by_role("rowheader", name="size", exact=True)).locator("td")
    expect(size.first).to_have_text(page.get_by_label("size", exact=True).input_value())
    expect(size.last).to_contain_text(neighbour["size"])


def test_pictures_beside_vectors_are_shown(open_page: OpenPage, tmp_path: Path, models: dict[str, Path]) -> None:
    model = Model.load(models["beside"])
    for examples in (model.examples, model.cases.examples):
        object.__setattr__(examples, "images", np.full((len(examples.table), 3, 64, 64), 90, np.uint8))
    model.save(tmp_path / "thumbnails")
    page = open_page(tmp_path / "thumbnails", "#case/2")
    assert page.locator("#answer img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 64
    assert cards(page).first.locator("img, dl, svg").evaluate_all("parts => parts.map(part => part.tagName)") == [
        "IMG",
        "DL",
        "svg",
    ]
    assert fits(page)


def test_ten_wrong_labels_are_mended_by_keyboard(open_page: OpenPage, tmp_path: Path) -> None:
    X, y = load_digits(return_X_y=True)
    X, y, held_out = X[:500], y[:500], X[500:]
    wrong = np.arange(0, 500, 50)
    noisy = y.copy()
    noisy[wrong] = (y[wrong] + 1) % 10
    before = AttnKNNClassifier(max_iter=3, n_neighbors=12, random_state=0).fit(X, noisy)
    before.save(tmp_path / "digits")
    page, started = open_page(tmp_path / "digits", "#labels", allow_save=True), time.monotonic()
    for n in range(1, 11):
        press(page, "r")
        shows(page, decided=f"{n} to relabel")
    press(page, "u", "ArrowLeft")
    shows(page, decided="9 to relabel")
    expect(page.locator("#decide-relabel")).to_have_class("main-button")
    press(page, "ArrowRight", "r")
    shows(page, decided="10 to relabel")
    with page.expect_download() as download:
        click(page, "#export")
    assert download.value.path().read_text().count("relabel") == 10
    page.reload()
    shows(page, decided="10 to relabel")
    click(page, "#apply")
    shows(page, changes="not saved", decided="0 reviewed")
    click(page, "#save")
    shows(page, changes=False, prediction=True)
    assert time.monotonic() - started < 60
    after = AttnKNNClassifier.load(tmp_path / "digits")
    mended = np.setdiff1d(np.arange(500), after.memory_.ids)
    assert np.isin(mended, wrong).sum() >= 9, "nine of the first ten are wrong"
    assert (after.memory_.ids[-10:] >= 500).all()
    assert not np.allclose(after.predict_proba(held_out), before.predict_proba(held_out), atol=1e-3)


def test_add_forget_and_reset(open_page: OpenPage, loaded: dict[str, Model]) -> None:
    page, new = open_page("table", "#case/1"), len(loaded["table"].classifier.memory_)
    shows(page, changes=False)
    first = answer(page)
    expect(page.locator("#add-label option")).to_have_text([HOSTILE, "apple", "melon", "a new class …"])
    page.locator("#add-label").select_option("melon")
    click(page, "#add")
    shows(page, comparison=f"Added as melon: row {new}.", changes="1 change, not saved")
    shows(page, changes="kept only while this server runs")
    expect(page.locator(f'[data-id="{new}"]')).to_contain_text("distance 0")
    click(page, f'[data-id="{new}"] button')
    shows(page, comparison=f"Row {new} forgotten.", changes=False)
    assert answer(page) == first
    count = cards(page).count()
    for _ in range(3):
        row = cards(page).first.get_attribute("data-id")
        click(page, "#neighbours article button")
        expect(page.locator(f'[data-id="{row}"]')).to_have_count(0)
        assert cards(page).count() == count
    shows(page, comparison=re.compile("The answer (was|stays)"))
    expect(page.locator("#bars b").first).to_be_attached()
    shows(page, set="(calibrated before the changes)", changes="3 rows forgotten")
    click(page, "#to-calibration")
    shows(page, calibration="before the changes")
    click(page, "#to-ask", "#reset")
    shows(page, changes=False, trail="Test case 0")  # reloaded
    page.goto(f"{page.home}#case/1")
    shows(page, trail="Test case 1", prediction=first)


def test_a_new_class_is_added(open_page: OpenPage) -> None:
    page = open_page("table", "#case/1")
    page.answers = "quince"
    page.locator("#add-label").select_option("a new class …")
    click(page, "#add")
    expect(page.locator("#add-label option")).to_have_text([HOSTILE, "apple", "melon", "quince", "a new class …"])
    shows(page, changes="1 change, not saved")
    page.answers = ""
    page.locator("#add-label").select_option("a new class …")
    click(page, "#add")
    shows(page, changes="1 change, not saved")


def test_save_and_reset_need_confirmation(open_page: OpenPage, copied: Path) -> None:
    page = open_page(copied, "#case/0", allow_save=True)
    before = len(Model.load(copied).classifier.memory_)
    click(page, "#neighbours article button")
    shows(page, changes="1 change, not saved")
    page.confirms = False
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    click(page, "#save", "#reset", "#what-if")
    shows(page, counterfactual=True, changes="1 change, not saved")
    assert len(page.questions) == 2
    assert not [url for url in sent if url.endswith(("/save", "/reset"))]
    page.confirms = True
    click(page, "#save")
    shows(page, changes=False, about=f"{before - 1}\u00a0examples\u00a0in\u00a0memory")
    assert len(Model.load(copied).classifier.memory_) == before - 1


def test_pages_reload_when_test_cases_are_renumbered(open_page: OpenPage, copied: Path) -> None:
    page = open_page(copied, "#case/2", allow_save=True)
    other = page.context.new_page()
    other.goto(page.url)
    click(page, "#add")
    shows(page, comparison="Added as")
    click(page, "#to-calibration")
    shows(page, taken=True)
    click(page, "#save")
    expect(page.locator("#trail")).to_have_text("Test case 0→")
    shows(page, comparison=False)
    assert "#" not in page.url
    # Other pages of the model reload too.
    shows(other, trail="Test case 2")
    click(other, "#next-case")
    expect(other.locator("#trail")).to_have_text("Test case 0→")


def test_reset_to_another_model(open_page: OpenPage, models: dict[str, Path], copied: Path) -> None:
    page = open_page(copied, "#case/1")
    click(page, "#ask-it")
    shows(page, trail="Your row")
    click(page, "#add")
    shows(page, comparison="Added as")
    shutil.rmtree(copied)
    shutil.copytree(models["vectors"], copied)
    click(page, "#reset")
    shows(page, trail="Row 0", field_4=True, about="vectors")
    shows(page, comparison=False, add_label=False)  # a row of the memory cannot be added


def test_changes_by_another_client(open_page: OpenPage) -> None:
    page = open_page("table", "#case/1")
    expect(cards(page).first).to_be_visible()
    rows = [card.get_attribute("data-id") for card in cards(page).all()]
    page.request.post(f"{page.home}api/forget", data={"ids": [int(rows[0]), int(rows[1])]})
    click(page, f'[data-id="{rows[2]}"] button')
    shows(page, comparison="Another client changed the memory in between")
    expect(page.locator("#bars b")).to_have_count(0)
    row = cards(page).first.get_attribute("data-id")
    click(page, f'[data-id="{row}"] button')
    shows(page, comparison=re.compile(f"Row {row} forgotten. The answer (was|stays)"))
    # A neighbour that another client has removed.
    row = cards(page).first.get_attribute("data-id")
    page.request.post(f"{page.home}api/forget", data={"ids": [int(row)]})
    click(page, f'[data-id="{row}"] a')
    shows(page, notice="is not in the memory", changes="5 changes")
    expect(page.locator(f'[data-id="{row}"]')).to_have_count(0)
    assert page.url.endswith("#case/1")
    page.errors.clear()


def test_confident_errors(open_page: OpenPage, loaded: dict[str, Model]) -> None:
    page = open_page("table", "#cases")
    model = loaded["table"]
    probs = model.classifier.predict_proba(model.cases.vectors)
    wrong = model.classifier.classes_[probs.argmax(1)] != model.cases.labels
    shows(page, count=f"{len(wrong)} test cases, {wrong.sum()} of them wrong")
    expect(page.locator("#list a.wrong")).to_have_count(int(wrong.sum()))
    page.get_by_text("Confident and wrong").click()
    page.locator("#least").select_option("0.5")
    confident = np.flatnonzero(wrong & (probs.max(1) >= 0.5))
    assert len(confident)
    expect(page.locator("#list a")).to_have_count(len(confident))
    first = page.locator("#list a").first
    assert first.get_attribute("data-case") == str(confident[probs.max(1)[confident].argmax()])
    expect(first).to_contain_text("predicted as")
    first.click()
    shows(page, verdict="Wrong: its label is")
    click(page, "#to-cases")
    expect(page.locator("#only-confident-wrong")).to_be_checked()


def test_counterfactual_of_the_least_sure_case(open_page: OpenPage) -> None:
    page = open_page("table", "#cases")
    page.locator("#only-unsure").check(force=True)
    shows(page, count="least sure first")
    click(page, "#list a")
    shows(page, prediction=True)
    before = answer(page)
    press(page, "w")
    shows(page, counterfactual="it would be")
    rows = page.locator("#counterfactual a").evaluate_all("links => links.map(link => link.textContent)")
    expect(page.locator("article.marked")).to_have_count(len(rows))
    assert {card.get_attribute("data-id") for card in page.locator("article.marked").all()} == set(rows)
    words = f"changes it with {len(rows) - 1} more" if len(rows) > 1 else "changes it"
    expect(page.locator("article.marked .mark").first).to_have_text(words)
    click(page, "#forget-these")
    shows(page, comparison="The answer was")
    assert answer(page).partition(",")[0] != before.partition(",")[0]


def altered(route: Any, alter: Callable[[dict[str, Any]], None]) -> None:
    """Change an answer of the server."""
    reply = route.fetch()
    response = reply.json()
    alter(response["answer"])
    route.fulfill(response=reply, json=response)


def test_comparison_with_the_answer_before_a_change(open_page: OpenPage) -> None:
    page = open_page("table", "#case/1")
    first: dict[str, Any] = page.request.get(f"{page.home}api/case/1").json()["answer"]
    for changes, message in (
        ({}, "The answer stays as it was."),
        ({"confidence": first["confidence"] - 0.2}, f"is now {first['prediction']} ("),
        ({"prediction": "another"}, "is now another ("),
    ):
        for case in (2, 1):
            page.goto(f"{page.home}#case/{case}")
            expect(page.locator("#trail strong")).to_have_text(f"Test case {case}")
        new = {name: first[name] for name in ("confidence", "prediction")} | changes
        page.route("**/api/case/1?*", lambda route, _, new=new: altered(route, lambda answer: answer.update(new)))
        click(page, "#neighbours article button")
        shows(page, comparison=message)
        page.unroute("**/api/case/1?*")


def test_an_added_row_of_negligible_weight(open_page: OpenPage) -> None:
    page = open_page("table", "#case/1")

    def alter(answer: dict[str, Any]) -> None:
        added = max(answer["neighbours"], key=lambda entry: entry["id"])
        for other in answer["neighbours"]:
            other["label"] = "apple"
        added.update(weight=0.0001, label="melon")
        answer["probabilities"][0]["p"] = 0.9995
        for entry in answer["probabilities"][1:]:
            entry["p"] = 0.0002

    page.route("**/api/case/1?*row=*", lambda route: altered(route, alter))
    page.locator("#add-label").select_option("melon")
    click(page, "#add")
    shows(page, added_weighs="it weighs 0.01 %: the rows around it carry other labels", bars="2 others")
    expect(page.locator("#bars .label")).to_have_count(1)
    row = re.findall(r"Row (\d+)", page.locator("#added-weighs").inner_text())[0]
    expect(page.locator(f'[data-id="{row}"] button')).to_be_visible()
    # The chosen label stays with the query.
    expect(page.locator("#add-label")).to_have_value("melon")
    click(page, "#next-case")
    shows(page, trail="Test case 2")
    page.locator("#add-label").select_option(HOSTILE)
    click(page, "#what-if")
    shows(page, counterfactual=True)
    expect(page.locator("#add-label")).to_have_value(HOSTILE)
    click(page, "#weights summary")
    shows(page, weights="labels counts for little")


def test_late_responses_are_dropped(open_page: OpenPage) -> None:
    page = open_page("table", "#case/0")
    delayed: list[Any] = []
    page.route("**/api/case/1?*", lambda route: delayed.append(route))
    with page.expect_request("**/api/case/1?*"):
        click(page, "#next-case")
    page.evaluate("location.hash = '#case/2'")
    expect(page.locator("#trail strong")).to_have_text("Test case 2")
    with page.expect_response("**/api/case/1?*") as reply:
        delayed[0].continue_()
    reply.value.finished()
    page.wait_for_timeout(100)
    expect(page.locator("#trail strong")).to_have_text("Test case 2")


@pytest.mark.parametrize("kind", ["beside", "long"])
def test_columns_beside_a_vector(open_page: OpenPage, kind: str) -> None:
    page = open_page(kind, "#case/2")
    shows(page, beside="thing")
    expect(cards(page).first).to_contain_text("thing")
    expect(page.locator("#neighbours article svg").first).to_be_visible()
    before = answer(page)
    expect(page.locator("#line")).to_have_count(int(kind == "long"))  # instead of many fields without names
    expect(page.locator(".fields input")).to_have_count(5 if kind == "beside" else 0)
    click(page, "#ask-it")
    shows(page, trail="Your vector", prediction=before, notice=False)
    assert fits(page)


def test_data_is_shown_as_text(open_page: OpenPage, loaded: dict[str, Model]) -> None:
    hostile = int(np.flatnonzero(loaded["table"].cases.labels == HOSTILE)[0])
    page = open_page("table", f"#case/{hostile}")
    shows(page, verdict=HOSTILE)
    expect(page.locator(".label", has_text=HOSTILE).first).to_be_visible()
    expect(page.get_by_text("<b>colour</b>", exact=True).first).to_be_visible()
    click(page, "#what-if")
    shows(page, counterfactual=True)
    page.locator("#add-label").select_option(HOSTILE)
    click(page, "#add")
    shows(page, comparison=f"Added as {HOSTILE}")
    list(see_other_views(page))
    click(page, "#to-cases")
    page.locator("#only").select_option(HOSTILE)
    shows(page, count=HOSTILE)
    click(page, "#list a")
    shows(page, verdict=HOSTILE)
    assert fits(page)
    assert page.locator('img[src="x"]').count() == 0
    assert page.locator("main b:not(.bar > b)").count() == 0
    assert page.title() == "my table · Attn-KNN"


def test_upload_pictures(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page("images")
    (image,), _ = pictures(1, seed=9)
    page.locator("#file").set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": png(image[0])})
    shows(page, trail="Your picture")
    assert "#asked/" in page.url
    url = page.url
    before = answer(page)
    click(page, "#random")
    shows(page, trail="Test case")
    page.goto(url)
    shows(page, prediction=before)
    assert page.errors == []
    for name, data, message in (
        ("words.jpg", b"no picture at all", "no readable image"),
        ("dot.png", png(np.zeros((1, 1), np.uint8)), "1×1 pixels: too few"),
        ("large.png", bytes(9_000_000), "The file has 9.0 MB; at most 8 MB are accepted"),
    ):
        (tmp_path / name).write_bytes(data)
        page.locator("#file").set_input_files(tmp_path / name)
        shows(page, notice=message, prediction=before)
    assert len(page.errors) == 2  # browsers log every error response
    page.errors.clear()
    click(page, "#random")
    shows(page, notice=False)


def test_edit_and_paste_a_row(open_page: OpenPage) -> None:
    page = open_page("table", "#case/3")

    def paste(line: str) -> None:
        page.get_by_text("Paste a line of a CSV file").click()
        page.locator("#paste").fill(line)
        click(page, "#fill")

    field = page.get_by_label("size", exact=True)
    expect(field).not_to_have_value("")
    field.fill("12.5")
    page.get_by_label("weight", exact=True).fill("")
    click(page, "#ask-it")
    shows(page, trail="Your row", verdict=False)
    expect(field).to_have_value("12.5")
    field.fill("large")
    page.keyboard.press("Enter")
    shows(page, notice="column 'size' is 'large'")
    page.errors.clear()
    paste('0.5, 3.25, "red"')
    shows(page, notice=False)
    expect(field).to_have_value("0.5")
    url = page.url
    click(page, "#ask-it")
    expect(page).not_to_have_url(url)  # the form is redrawn
    shows(page, notice=False)
    paste("1,2")
    shows(page, notice="2 values for 3 fields")


def test_vectors_without_test_cases(open_page: OpenPage) -> None:
    page = open_page("vectors")
    shows(page, trail="Row 0")
    expect(page.locator("#neighbours article svg").first).to_be_visible()
    page.locator("#field-0").fill("−1.5")
    click(page, "#ask-it")
    shows(page, trail="Your vector", nearest="Nearest neighbour at distance ")
    page.locator("#field-0").fill("99999")
    click(page, "#ask-it")
    shows(page, nearest="Far from the memory: its nearest neighbour is at distance ", set="90 % set: every class")
    page.locator("#field-1").fill("")
    click(page, "#ask-it")
    shows(page, notice="Dimension 1: no value")
    for view in see_other_views(page):
        shows(page, **{view: "Least credible first" if view == "labels" else "attnknn fit SOURCE -o MODEL --test 0.1"})


def test_unknown_address_and_server_not_available(open_page: OpenPage) -> None:
    page = open_page("table", "#memory/999999")
    shows(page, notice="is not in the memory")
    page.route("**/api/change*", lambda route: route.abort())
    click(page, "#what-if")
    shows(page, notice="The server does not answer")
    page.errors.clear()


@pytest.mark.parametrize("kind", ["table", "images", "vectors"])
def test_every_view_fits_at_both_sizes(open_page: OpenPage, kind: str) -> None:
    page = open_page(kind, "#memory/1")
    click(page, "#what-if")
    shows(page, counterfactual=True)
    page.locator("#other").evaluate("details => { details.open = true; }")
    assert fits(page)
    for view in see_other_views(page):
        assert fits(page), view
