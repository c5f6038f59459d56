"""The page in headless Chromium: user interactions, layout at two sizes, and data with HTML in it."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnknn.app.model.model import Model
from attnknn.app.server.app import create_app
from server_fixtures import HOSTILE, beside_model, picture_model, pictures, png, running, table_model, vector_model

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH")
expect = playwright.expect
SIZES = ((420, 800), (1280, 800))
OpenPage = Callable[..., Any]  # kind of model, fragment of the address, options of `create_app` → page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "table": table_model(folder / "table"),
        "images": picture_model(folder / "images"),
        "vectors": vector_model(folder / "vectors"),
        "beside": beside_model(folder / "beside", 5),
        "long": beside_model(folder / "long", 300),
    }


@pytest.fixture
def open_page(browser: Any, models: dict[str, Path]) -> Iterator[OpenPage]:
    """Open the page of a model; at the end there must be no errors in it, and no request to another host."""
    errors: list[str] = []
    with ExitStack() as stack:

        def open_model(kind: str, fragment: str = "", **options: Any) -> Any:
            app = create_app(Model.load(models[kind]), name=f"my {kind}", folder=models[kind], **options)
            home = f"http://127.0.0.1:{stack.enter_context(running(app))}/"
            page = stack.enter_context(browser.new_context(viewport={"width": 1280, "height": 800})).new_page()
            page.set_default_timeout(8000)
            page.errors, page.questions, page.confirms = errors, [], True

            def on_dialog(dialog: Any) -> None:
                if dialog.type != "confirm":
                    errors.append(f"{dialog.type}: {dialog.message}")
                page.questions.append(dialog.message)
                (dialog.accept if page.confirms else dialog.dismiss)()

            def on_request(request: Any) -> None:
                if not request.url.startswith((home, "data:", "blob:")):
                    errors.append(f"request to another host: {request.url}")

            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("dialog", on_dialog)
            page.on("request", on_request)
            page.goto(home + fragment)
            return page

        yield open_model
    assert errors == []


@pytest.fixture
def copied(models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy of the table model, opened instead of it."""
    copied = Path(shutil.copytree(models["table"], tmp_path / "model"))
    monkeypatch.setitem(models, "table", copied)
    return copied


def answer(page: Any) -> str:
    return page.locator("#prediction").inner_text()


def fits(page: Any) -> bool:
    """Whether nothing is wider than the window or its card, at both sizes."""
    overflow = []
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        overflow.append(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
        wide = "[...document.querySelectorAll('.card')].filter((card) => card.scrollWidth > card.clientWidth).length"
        overflow.append(page.evaluate(wide))
    return overflow == [0, 0, 0, 0]


def test_first_answer(open_page: OpenPage, models: dict[str, Path]) -> None:
    page = open_page("images")
    expect(page.locator("#name")).to_have_text("my images")
    expect(page).to_have_title("my images · Attn-KNN")
    model = Model.load(models["images"])
    (top,) = model.answers(model.classifier.explain(model.cases.vectors[:1]))
    expect(page.locator("#prediction")).to_contain_text(f"{top['prediction']}, {round(100 * top['confidence'])} % sure")
    expect(page.locator("#set")).to_contain_text("90 % set: ")
    expect(page.locator("#set")).to_contain_text("nine times in ten, on rows that were held out")
    expect(page.locator("#set")).not_to_contain_text("before the changes")
    cards = page.locator("#neighbours article")
    expect(cards).to_have_count(10)
    assert cards.first.get_attribute("data-id") == str(top["neighbours"][0]["id"])
    assert page.locator("#neighbours img").first.evaluate("image => image.decode().then(() => image.naturalWidth)") == 8
    page.locator("#more").click()
    expect(cards).to_have_count(12)


def test_navigation_between_neighbours(open_page: OpenPage) -> None:
    page = open_page("table", "#case/2")
    expect(page.locator("#trail")).to_contain_text("Test case 2")
    card = page.locator("#neighbours article").nth(1)
    row = card.get_attribute("data-id")
    card.locator("a").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#verdict")).to_contain_text("left out for this answer")
    assert page.url.endswith(f"#memory/{row}")
    expect(page.locator("#trail")).to_contain_text(f"Row {row}")
    page.locator("#back").click()
    expect(page.locator("#verdict")).to_contain_text("its label is")
    assert page.url.endswith("#case/2")
    page.go_back()
    expect(page.locator("#verdict")).to_contain_text("left out")
    page.reload()
    expect(page.locator("#verdict")).to_contain_text("left out")


def test_add_forget_and_reset(open_page: OpenPage, models: dict[str, Path]) -> None:
    new = len(Model.load(models["table"]).classifier.memory_)
    page = open_page("table", "#case/1")
    expect(page.locator("#prediction")).to_be_visible()
    expect(page.locator("#changes")).to_be_hidden()
    first = answer(page)
    expect(page.locator("#add-label option")).to_have_text([HOSTILE, "apple", "melon"])
    page.locator("#add-label").select_option("melon")
    page.locator("#add").click()
    expect(page.locator("#comparison")).to_contain_text(f"Added as melon: row {new}.")
    expect(page.locator("#changes")).to_contain_text("1 change, not saved")
    expect(page.locator("#changes")).to_contain_text("kept only while this server runs")
    expect(page.locator(f'[data-id="{new}"]')).to_contain_text("0 away")
    page.locator(f'[data-id="{new}"] button').click()
    expect(page.locator("#comparison")).to_contain_text(f"Row {new} forgotten.")
    expect(page.locator("#changes")).to_be_hidden()
    assert answer(page) == first
    for _ in range(3):
        count = page.locator("#neighbours article").count()
        nearest = page.locator("#neighbours article").first
        row = nearest.get_attribute("data-id")
        nearest.locator("button").click()
        expect(page.locator(f'[data-id="{row}"]')).to_have_count(0)
        assert page.locator("#neighbours article").count() == count
    expect(page.locator("#comparison")).to_contain_text(re.compile("The answer (was|stays)"))
    expect(page.locator("#bars b").first).to_be_attached()
    expect(page.locator("#set")).to_contain_text("(calibrated before the changes)")
    expect(page.locator("#changes")).to_contain_text("3 rows forgotten")
    page.locator("#to-calibration").click()
    expect(page.locator(".tiles")).to_contain_text("before the changes")
    page.locator("#to-ask").click()
    page.locator("#reset").click()
    expect(page.locator("#changes")).to_be_hidden()
    expect(page.locator("#trail")).to_contain_text("Test case 0")  # reloaded
    page.goto(page.url.partition("#")[0] + "#case/1")
    expect(page.locator("#trail")).to_contain_text("Test case 1")
    expect(page.locator("#prediction")).to_have_text(first)


def test_forget_the_current_row(open_page: OpenPage) -> None:
    page = open_page("table", "#memory/5")
    page.locator("#neighbours article a").first.click()
    expect(page.locator("#back")).to_be_visible()
    page.locator("#forget-this").click()
    expect(page.locator("#trail")).to_contain_text("Row 5")
    expect(page.locator("#changes")).to_contain_text("1 row forgotten")


def test_save(open_page: OpenPage, copied: Path) -> None:
    page = open_page("table", "#case/0", allow_save=True)
    page.locator("#neighbours article button").first.click()
    expect(page.locator("#changes")).to_contain_text("1 change, not saved")
    before = len(Model.load(copied).classifier.memory_)
    page.locator("#save").click()
    expect(page.locator("#changes")).to_be_hidden()
    expect(page.locator("#about")).to_contain_text(f"{before - 1}\u00a0examples\u00a0in\u00a0memory")
    assert len(Model.load(copied).classifier.memory_) == before - 1


def test_pages_reload_when_test_cases_are_renumbered(open_page: OpenPage, copied: Path) -> None:
    page = open_page("table", "#case/2", allow_save=True)
    other = page.context.new_page()
    other.goto(page.url)
    page.locator("#add").click()
    expect(page.locator("#comparison")).to_contain_text("Added as")
    page.locator("#to-calibration").click()
    expect(page.locator("#taken")).to_be_visible()
    page.locator("#save").click()
    expect(page.locator("#trail")).to_have_text("Test case 0→")
    expect(page.locator("#comparison")).to_have_count(0)
    assert "#" not in page.url
    # Other pages of the model reload too.
    expect(other.locator("#trail")).to_contain_text("Test case 2")
    other.locator('[id="go →"]').click()
    expect(other.locator("#trail")).to_have_text("Test case 0→")


def test_reset_to_another_model(open_page: OpenPage, models: dict[str, Path], copied: Path) -> None:
    page = open_page("table", "#case/1")
    page.locator("#ask-it").click()
    expect(page.locator("#trail")).to_contain_text("Your row")
    page.locator("#add").click()
    expect(page.locator("#comparison")).to_contain_text("Added as")
    shutil.rmtree(copied)
    shutil.copytree(models["vectors"], copied)
    page.locator("#reset").click()
    expect(page.locator("#trail")).to_have_text("Row 0")
    expect(page.locator("#comparison")).to_have_count(0)
    expect(page.locator("#add-label option")).to_have_count(0)  # a row of the memory cannot be added
    expect(page.locator("#field-4")).to_be_visible()
    expect(page.locator("#about")).to_contain_text("vectors")


def test_changes_by_another_client(open_page: OpenPage) -> None:
    page = open_page("table", "#case/1")
    expect(page.locator("#neighbours article").first).to_be_visible()
    home = page.url.partition("#")[0]
    rows = [card.get_attribute("data-id") for card in page.locator("#neighbours article").all()]
    page.request.post(f"{home}api/forget", data={"ids": [int(rows[0]), int(rows[1])]})
    page.locator(f'[data-id="{rows[2]}"] button').click()
    expect(page.locator("#comparison")).to_contain_text("Another client changed the memory in between")
    expect(page.locator("#bars b")).to_have_count(0)
    row = page.locator("#neighbours article").first.get_attribute("data-id")
    page.locator(f'[data-id="{row}"] button').click()
    expect(page.locator("#comparison")).to_contain_text(re.compile(f"Row {row} forgotten. The answer (was|stays)"))
    # A neighbour that another client has removed.
    row = page.locator("#neighbours article").first.get_attribute("data-id")
    page.request.post(f"{home}api/forget", data={"ids": [int(row)]})
    page.locator(f'[data-id="{row}"] a').click()
    expect(page.locator("#notice")).to_contain_text("is not in the memory")
    expect(page.locator(f'[data-id="{row}"]')).to_have_count(0)
    assert page.url.endswith("#case/1")
    expect(page.locator("#changes")).to_contain_text("5 changes")
    page.errors.clear()


def test_confident_errors(open_page: OpenPage, models: dict[str, Path]) -> None:
    page = open_page("table", "#cases")
    model = Model.load(models["table"])
    probs = model.classifier.predict_proba(model.cases.vectors)
    wrong = model.classifier.classes_[probs.argmax(1)] != model.cases.labels
    expect(page.locator("#count")).to_contain_text(f"{len(wrong)} test cases, {wrong.sum()} of them wrong")
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
    expect(page.locator("#verdict")).to_contain_text("Wrong: its label is")
    page.locator("#to-cases").click()
    expect(page.locator("#only-confident-wrong")).to_be_checked()


def alter_answers(page: Any, address: str, alter: Callable[[dict[str, Any]], None]) -> None:
    """Change the answers of the server at an address."""

    def handle(route: Any) -> None:
        reply = route.fetch()
        response = reply.json()
        alter(response["answer"])
        route.fulfill(response=reply, json=response)

    page.route(address, handle)


def test_comparison_with_the_answer_before_a_change(open_page: OpenPage) -> None:
    page = open_page("table", "#case/1")
    expect(page.locator("#prediction")).to_be_visible()
    first: dict[str, Any] = page.request.get(page.url.partition("#")[0] + "api/case/1").json()["answer"]
    for changes, message in (
        ({}, "The answer stays as it was."),
        ({"confidence": first["confidence"] - 0.2}, f"is now {first['prediction']} ("),
        ({"prediction": "another"}, "is now another ("),
    ):
        for case in (2, 1):
            page.goto(page.url.partition("#")[0] + f"#case/{case}")
            expect(page.locator("#trail strong")).to_have_text(f"Test case {case}")
        before = {name: first[name] for name in ("confidence", "prediction")}
        alter_answers(page, "**/api/case/1?*", lambda answer, new=before | changes: answer.update(new))
        page.locator("#neighbours article button").first.click()
        expect(page.locator("#comparison")).to_contain_text(message)
        page.unroute("**/api/case/1?*")


def test_an_added_row_of_negligible_weight(open_page: OpenPage) -> None:
    page = open_page("table", "#case/1")
    expect(page.locator("#prediction")).to_be_visible()

    def alter(answer: dict[str, Any]) -> None:
        added = max(answer["neighbours"], key=lambda entry: entry["id"])
        for other in answer["neighbours"]:
            other["label"] = "apple"
        added.update(weight=0.0001, label="melon")
        answer["probabilities"][0]["p"] = 0.9995
        for entry in answer["probabilities"][1:]:
            entry["p"] = 0.0002

    alter_answers(page, "**/api/case/1?*row=*", alter)
    page.locator("#add-label").select_option("melon")
    page.locator("#add").click()
    expect(page.locator("#added-weighs")).to_contain_text("it weighs 0.01 %: the rows around it carry other labels")
    expect(page.locator("#bars")).to_contain_text("2 others")
    expect(page.locator("#bars .label")).to_have_count(1)
    row = re.findall(r"Row (\d+)", page.locator("#added-weighs").inner_text())[0]
    expect(page.locator(f'[data-id="{row}"] button')).to_be_visible()
    # The chosen label stays with the query.
    expect(page.locator("#add-label")).to_have_value("melon")
    page.locator('[id="go →"]').click()
    expect(page.locator("#trail")).to_contain_text("Test case 2")
    page.locator("#add-label").select_option(HOSTILE)
    page.locator("#what-if").click()
    expect(page.locator("#counterfactual")).to_be_visible()
    expect(page.locator("#add-label")).to_have_value(HOSTILE)
    page.locator("#weights summary").click()
    expect(page.locator("#weights")).to_contain_text("labels counts for little")


def test_save_and_reset_need_confirmation(open_page: OpenPage, copied: Path) -> None:
    page = open_page("table", "#case/0", allow_save=True)
    page.locator("#neighbours article button").first.click()
    expect(page.locator("#changes")).to_contain_text("1 change, not saved")
    page.confirms = False
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.locator("#save").click()
    page.locator("#reset").click()
    page.locator("#what-if").click()
    expect(page.locator("#counterfactual")).to_be_visible()
    assert len(page.questions) == 2
    assert not [url for url in sent if url.endswith(("/save", "/reset"))]
    expect(page.locator("#changes")).to_contain_text("1 change, not saved")


def test_late_responses_are_dropped(open_page: OpenPage) -> None:
    page = open_page("table", "#case/0")
    expect(page.locator("#prediction")).to_be_visible()
    delayed: list[Any] = []
    page.route("**/api/case/1?*", lambda route: delayed.append(route))
    page.locator('[id="go →"]').click()
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
    expect(page.locator("#beside")).to_contain_text("thing")
    expect(page.locator("#neighbours article").first).to_contain_text("thing")
    expect(page.locator("#neighbours article svg").first).to_be_visible()
    before = answer(page)
    expect(page.locator("#line")).to_have_count(int(kind == "long"))  # instead of many fields without names
    expect(page.locator(".fields input")).to_have_count(5 if kind == "beside" else 0)
    page.locator("#ask-it").click()
    expect(page.locator("#trail")).to_contain_text("Your vector")
    expect(page.locator("#prediction")).to_have_text(before)
    expect(page.locator("#notice")).to_be_hidden()
    assert fits(page)


def test_data_is_shown_as_text(open_page: OpenPage, models: dict[str, Path]) -> None:
    hostile = int(np.flatnonzero(Model.load(models["table"]).cases.labels == HOSTILE)[0])
    page = open_page("table", f"#case/{hostile}")
    expect(page.locator("#verdict")).to_contain_text(HOSTILE)
    expect(page.locator(".label", has_text=HOSTILE).first).to_be_visible()
    expect(page.get_by_text("<b>colour</b>", exact=True).first).to_be_visible()
    page.locator("#what-if").click()
    expect(page.locator("#counterfactual")).to_be_visible()
    page.locator("#add-label").select_option(HOSTILE)
    page.locator("#add").click()
    expect(page.locator("#comparison")).to_contain_text(f"Added as {HOSTILE}")
    for view in ("cases", "calibration"):
        page.locator(f"#to-{view}").click()
        expect(page.locator(f"#{view} .card").first).to_be_visible()
    page.locator("#to-cases").click()
    page.locator("#only").select_option(HOSTILE)
    expect(page.locator("#count")).to_contain_text(HOSTILE)
    page.locator("#list a").first.click()
    expect(page.locator("#verdict")).to_contain_text(HOSTILE)
    assert fits(page)
    assert page.locator('img[src="x"]').count() == 0
    assert page.locator("main b:not(.bar > b)").count() == 0
    assert page.title() == "my table · Attn-KNN"


def test_upload_pictures(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page("images")
    expect(page.locator("#prediction")).to_be_visible()
    (image,), _ = pictures(1, seed=9)
    page.locator("#file").set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": png(image[0])})
    expect(page.locator("#trail")).to_contain_text("Your picture")
    assert "#asked/" in page.url
    url = page.url
    before = answer(page)
    page.locator("#random").click()
    expect(page.locator("#trail")).to_contain_text("Test case")
    page.goto(url)
    expect(page.locator("#prediction")).to_have_text(before)
    assert page.errors == []
    for name, data, message in (
        ("words.jpg", b"no picture at all", "no readable image"),
        ("dot.png", png(np.zeros((1, 1), np.uint8)), "1×1 pixels: too few"),
        ("large.png", bytes(9_000_000), "The file has 9.0 MB; at most 8 MB are accepted"),
    ):
        (tmp_path / name).write_bytes(data)
        page.locator("#file").set_input_files(tmp_path / name)
        expect(page.locator("#notice")).to_contain_text(message)
        expect(page.locator("#prediction")).to_have_text(before)
    assert len(page.errors) == 2  # browsers log every error response
    page.errors.clear()
    page.locator("#random").click()
    expect(page.locator("#notice")).to_be_hidden()


def test_edit_and_paste_a_row(open_page: OpenPage) -> None:
    page = open_page("table", "#case/3")
    field = page.get_by_label("size", exact=True)
    expect(field).not_to_have_value("")
    field.fill("12.5")
    page.get_by_label("weight", exact=True).fill("")
    page.locator("#ask-it").click()
    expect(page.locator("#trail")).to_contain_text("Your row")
    expect(field).to_have_value("12.5")
    expect(page.locator("#verdict")).to_have_count(0)
    field.fill("large")
    page.keyboard.press("Enter")
    expect(page.locator("#notice")).to_contain_text("column 'size' is 'large'")
    page.errors.clear()
    page.get_by_text("Paste a line of a CSV file").click()
    page.locator("#paste").fill('0.5, 3.25, "red"')
    page.locator("#fill").click()
    expect(page.locator("#notice")).to_be_hidden()
    expect(field).to_have_value("0.5")
    url = page.url
    page.locator("#ask-it").click()
    expect(page).not_to_have_url(url)  # the form is redrawn
    expect(page.locator("#notice")).to_be_hidden()
    page.get_by_text("Paste a line of a CSV file").click()
    page.locator("#paste").fill("1,2")
    page.locator("#fill").click()
    expect(page.locator("#notice")).to_contain_text("2 values for 3 fields")


def test_vectors_without_test_cases(open_page: OpenPage) -> None:
    page = open_page("vectors")
    expect(page.locator("#trail")).to_contain_text("Row 0")
    expect(page.locator("#neighbours article svg").first).to_be_visible()
    page.locator("#field-0").fill("−1.5")
    page.locator("#ask-it").click()
    expect(page.locator("#trail")).to_contain_text("Your vector")
    page.locator("#field-1").fill("")
    page.locator("#ask-it").click()
    expect(page.locator("#notice")).to_contain_text("Dimension 1: no value")
    for view in ("cases", "calibration"):
        page.locator(f"#to-{view}").click()
        expect(page.locator(f"#{view}")).to_contain_text("attnknn fit SOURCE -o MODEL --test 0.1")


def test_counterfactual(open_page: OpenPage) -> None:
    page = open_page("table", "#cases")
    page.locator("#only-unsure").check(force=True)
    expect(page.locator("#count")).to_contain_text("least sure first")
    page.locator("#list a").first.click()
    expect(page.locator("#prediction")).to_be_visible()
    before = answer(page)
    page.locator("#what-if").click()
    expect(page.locator("#counterfactual")).to_contain_text("it would be")
    expect(page.locator("article.marked").first).to_be_visible()
    page.locator("#forget-these").click()
    expect(page.locator("#comparison")).to_contain_text("The answer was")
    assert answer(page).partition(",")[0] != before.partition(",")[0]


def test_server_not_available(open_page: OpenPage) -> None:
    page = open_page("images")
    expect(page.locator("#prediction")).to_be_visible()
    page.route("**/api/change*", lambda route: route.abort())
    page.locator("#what-if").click()
    expect(page.locator("#notice")).to_contain_text("The server does not answer")
    page.errors.clear()


def test_unknown_address(open_page: OpenPage) -> None:
    page = open_page("table", "#memory/999999")
    expect(page.locator("#prediction")).to_be_visible()
    expect(page.locator("#notice")).to_contain_text("is not in the memory")
    page.errors.clear()


@pytest.mark.parametrize("kind", ["table", "images", "vectors"])
def test_every_view_fits_at_both_sizes(open_page: OpenPage, kind: str) -> None:
    page = open_page(kind, "#memory/1")
    expect(page.locator("#prediction")).to_be_visible()
    page.locator("#what-if").click()
    expect(page.locator("#counterfactual")).to_be_visible()
    page.locator("#other").evaluate("details => { details.open = true; }")
    assert fits(page)
    for view in ("cases", "calibration"):
        page.locator(f"#to-{view}").click()
        expect(page.locator(f"#{view} .card").first).to_be_visible()
        assert fits(page)
