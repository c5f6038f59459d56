"""The page in a headless Chromium: what a person does there, at two sizes, and what data must not do."""

import re
import shutil
from collections.abc import Callable, Iterator
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
def opened(browser: Any, models: dict[str, Path]) -> Iterator[Callable[..., Any]]:
    """Opens the page of a model; at the end nothing may have gone wrong in it, and no request have left the host."""
    faults: list[str] = []
    closing: list[Callable[[], None]] = []

    def open_page(kind: str, fragment: str = "", **options: Any) -> Any:
        model = Model.load(models[kind])
        served = running(create_app(model, name=f"my {kind}", folder=models[kind], **options))
        port = served.__enter__()
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.set_default_timeout(8000)
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))

        def answer_dialog(dialog: Any) -> None:
            if dialog.type != "confirm":
                faults.append(f"{dialog.type}: {dialog.message}")
            page.questions.append(dialog.message)
            if page.says_yes:
                dialog.accept()
            else:
                dialog.dismiss()

        page.questions, page.says_yes = [], True
        page.on("dialog", answer_dialog)
        home = f"http://127.0.0.1:{port}/"
        local = (home, "data:", "blob:")
        page.on("request", lambda sent: None if sent.url.startswith(local) else faults.append(f"left: {sent.url}"))
        page.goto(home + fragment)
        page.expected_faults = faults
        closing.append(lambda: (context.close(), served.__exit__(None, None, None)))  # type: ignore[func-returns-value]
        return page

    yield open_page
    for close in closing:
        close()
    assert faults == []


@pytest.fixture
def copied(models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the table model, opened in its place."""
    copied = Path(shutil.copytree(models["table"], tmp_path / "model"))
    monkeypatch.setitem(models, "table", copied)
    return copied


def answer(page: Any) -> str:
    return page.locator("#prediction").inner_text()


def fits(page: Any) -> bool:
    """Whether nothing is wider than the window or its card, on a phone and on a desk."""
    over = []
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        over.append(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
        wide = "[...document.querySelectorAll('.card')].filter((card) => card.scrollWidth > card.clientWidth).length"
        over.append(page.evaluate(wide))
    return over == [0, 0, 0, 0]


def test_it_opens_with_an_answer(opened: Callable[..., Any], models: dict[str, Path]) -> None:
    page = opened("images")
    expect(page.locator("#name")).to_have_text("my images")
    expect(page).to_have_title("my images · Attn-KNN")
    model = Model.load(models["images"])
    assert model.cases is not None
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


def test_from_neighbour_to_neighbour_and_back(opened: Callable[..., Any]) -> None:
    page = opened("table", "#case/2")
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


def test_adding_and_forgetting_are_seen(opened: Callable[..., Any], models: dict[str, Path]) -> None:
    new = len(Model.load(models["table"]).classifier.memory_)
    page = opened("table", "#case/1")
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
        gone = page.locator("#neighbours article").first
        row = gone.get_attribute("data-id")
        gone.locator("button").click()
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
    expect(page.locator("#trail")).to_contain_text("Test case 0")  # it starts anew
    page.goto(page.url.partition("#")[0] + "#case/1")
    expect(page.locator("#trail")).to_contain_text("Test case 1")
    expect(page.locator("#prediction")).to_have_text(first)


def test_a_row_that_is_looked_at_is_forgotten(opened: Callable[..., Any]) -> None:
    page = opened("table", "#memory/5")
    page.locator("#neighbours article a").first.click()
    expect(page.locator("#back")).to_be_visible()
    page.locator("#forget-this").click()
    expect(page.locator("#trail")).to_contain_text("Row 5")
    expect(page.locator("#changes")).to_contain_text("1 row forgotten")


def test_changes_are_saved_where_that_is_allowed(opened: Callable[..., Any], copied: Path) -> None:
    page = opened("table", "#case/0", allow_save=True)
    page.locator("#neighbours article button").first.click()
    expect(page.locator("#changes")).to_contain_text("1 change, not saved")
    before = len(Model.load(copied).classifier.memory_)
    page.locator("#save").click()
    expect(page.locator("#changes")).to_be_hidden()
    expect(page.locator("#about")).to_contain_text(f"{before - 1}\u00a0examples\u00a0in\u00a0memory")
    assert len(Model.load(copied).classifier.memory_) == before - 1


def test_the_page_starts_anew_when_test_cases_have_other_numbers(opened: Callable[..., Any], copied: Path) -> None:
    page = opened("table", "#case/2", allow_save=True)
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
    # Whoever else looks at it begins anew too.
    expect(other.locator("#trail")).to_contain_text("Test case 2")
    other.locator('[id="go →"]').click()
    expect(other.locator("#trail")).to_have_text("Test case 0→")


def test_another_model_on_disk_is_another_page(
    opened: Callable[..., Any], models: dict[str, Path], copied: Path
) -> None:
    page = opened("table", "#case/1")
    page.locator("#ask-it").click()
    expect(page.locator("#trail")).to_contain_text("Your row")
    page.locator("#add").click()
    expect(page.locator("#comparison")).to_contain_text("Added as")
    shutil.rmtree(copied)
    shutil.copytree(models["vectors"], copied)
    page.locator("#reset").click()
    expect(page.locator("#trail")).to_have_text("Row 0")
    expect(page.locator("#comparison")).to_have_count(0)
    expect(page.locator("#add-label option")).to_have_count(0)  # a row of the memory is not added
    expect(page.locator("#field-4")).to_be_visible()
    expect(page.locator("#about")).to_contain_text("vectors")


def test_what_somebody_else_changed_is_not_taken_for_ones_own(opened: Callable[..., Any]) -> None:
    page = opened("table", "#case/1")
    expect(page.locator("#neighbours article").first).to_be_visible()
    home = page.url.partition("#")[0]
    rows = [card.get_attribute("data-id") for card in page.locator("#neighbours article").all()]
    page.request.post(f"{home}api/forget", data={"ids": [int(rows[0]), int(rows[1])]})
    page.locator(f'[data-id="{rows[2]}"] button').click()
    expect(page.locator("#comparison")).to_contain_text("Somebody else changed the memory in between")
    expect(page.locator("#bars b")).to_have_count(0)
    row = page.locator("#neighbours article").first.get_attribute("data-id")
    page.locator(f'[data-id="{row}"] button').click()
    expect(page.locator("#comparison")).to_contain_text(re.compile(f"Row {row} forgotten. The answer (was|stays)"))
    # A neighbour that is gone, and the address.
    row = page.locator("#neighbours article").first.get_attribute("data-id")
    page.request.post(f"{home}api/forget", data={"ids": [int(row)]})
    page.locator(f'[data-id="{row}"] a').click()
    expect(page.locator("#notice")).to_contain_text("is not in the memory")
    expect(page.locator(f'[data-id="{row}"]')).to_have_count(0)
    assert page.url.endswith("#case/1")
    expect(page.locator("#changes")).to_contain_text("5 changes")
    page.expected_faults.clear()


def test_confident_and_wrong(opened: Callable[..., Any], models: dict[str, Path]) -> None:
    page = opened("table", "#cases")
    model = Model.load(models["table"])
    assert model.cases is not None
    probs = model.classifier.predict_proba(model.cases.vectors)
    wrong = model.classifier.classes_[probs.argmax(1)] != model.cases.labels
    expect(page.locator("#count")).to_contain_text(f"{len(wrong)} test cases, {wrong.sum()} of them wrong")
    expect(page.locator("#list a.wrong")).to_have_count(int(wrong.sum()))
    page.get_by_text("Confident and wrong").click()
    page.locator("#least").select_option("0.5")
    sure = np.flatnonzero(wrong & (probs.max(1) >= 0.5))
    assert len(sure)
    expect(page.locator("#list a")).to_have_count(len(sure))
    first = page.locator("#list a").first
    assert first.get_attribute("data-case") == str(sure[probs.max(1)[sure].argmax()])
    expect(first).to_contain_text("taken for")
    first.click()
    expect(page.locator("#verdict")).to_contain_text("Wrong: its label is")
    page.locator("#to-cases").click()
    expect(page.locator("#only-confident-wrong")).to_be_checked()


def altered(page: Any, address: str, alter: Callable[[dict[str, Any]], None]) -> None:
    """Changes what the server answers."""

    def answered(route: Any) -> None:
        reply = route.fetch()
        response = reply.json()
        alter(response["answer"])
        route.fulfill(response=reply, json=response)

    page.route(address, answered)


def test_what_an_answer_was_and_is(opened: Callable[..., Any]) -> None:
    page = opened("table", "#case/1")
    expect(page.locator("#prediction")).to_be_visible()
    first: dict[str, Any] = page.request.get(page.url.partition("#")[0] + "api/case/1").json()["answer"]
    for by, prediction in ((0, None), (0.2, None), (0, "another")):

        def alter(answer: dict[str, Any], by: float = by, prediction: str | None = prediction) -> None:
            answer["confidence"] = first["confidence"] - by
            answer["prediction"] = prediction or first["prediction"]

        page.goto(page.url.partition("#")[0] + "#case/2")
        expect(page.locator("#trail")).to_contain_text("Test case 2")
        page.goto(page.url.partition("#")[0] + "#case/1")
        expect(page.locator("#trail strong")).to_have_text("Test case 1")
        altered(page, "**/api/case/1?*", alter)
        page.locator("#neighbours article button").first.click()
        words = f"is now {prediction or first['prediction']} (" if by or prediction else "The answer stays as it was."
        expect(page.locator("#comparison")).to_contain_text(words)
        page.unroute("**/api/case/1?*")


def test_a_row_that_was_added_and_weighs_nothing(opened: Callable[..., Any]) -> None:
    page = opened("table", "#case/1")
    expect(page.locator("#prediction")).to_be_visible()

    def alter(answer: dict[str, Any]) -> None:
        added = max(answer["neighbours"], key=lambda entry: entry["id"])  # the row that was added
        for other in answer["neighbours"]:
            other["label"] = "apple"
        added.update(weight=0.0001, label="melon")
        answer["probabilities"][0]["p"] = 0.9995
        for entry in answer["probabilities"][1:]:
            entry["p"] = 0.0002

    altered(page, "**/api/case/1?*row=*", alter)
    page.locator("#add-label").select_option("melon")
    page.locator("#add").click()
    expect(page.locator("#added-weighs")).to_contain_text("it weighs 0.01 %: the rows around it carry other labels")
    expect(page.locator("#bars")).to_contain_text("2 others")
    expect(page.locator("#bars .label")).to_have_count(1)
    row = re.findall(r"Row (\d+)", page.locator("#added-weighs").inner_text())[0]
    expect(page.locator(f'[data-id="{row}"] button')).to_be_visible()
    # The label that was chosen stays while the same is asked.
    expect(page.locator("#add-label")).to_have_value("melon")
    page.locator('[id="go →"]').click()
    expect(page.locator("#trail")).to_contain_text("Test case 2")
    page.locator("#add-label").select_option(HOSTILE)
    page.locator("#what-if").click()
    expect(page.locator("#counterfactual")).to_be_visible()
    expect(page.locator("#add-label")).to_have_value(HOSTILE)
    page.locator("#weights summary").click()
    expect(page.locator("#weights")).to_contain_text("labels counts for little")


def test_nothing_is_lost_or_written_without_a_yes(opened: Callable[..., Any], copied: Path) -> None:
    page = opened("table", "#case/0", allow_save=True)
    page.locator("#neighbours article button").first.click()
    expect(page.locator("#changes")).to_contain_text("1 change, not saved")
    page.says_yes = False
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.locator("#save").click()
    page.locator("#reset").click()
    page.locator("#what-if").click()
    expect(page.locator("#counterfactual")).to_be_visible()
    assert len(page.questions) == 2
    assert not [url for url in sent if url.endswith(("/save", "/reset"))]
    expect(page.locator("#changes")).to_contain_text("1 change, not saved")


def test_answers_that_come_late_are_dropped(opened: Callable[..., Any]) -> None:
    page = opened("table", "#case/0")
    expect(page.locator("#prediction")).to_be_visible()
    held: list[Any] = []
    page.route("**/api/case/1?*", lambda route: held.append(route))
    page.locator('[id="go →"]').click()
    page.evaluate("location.hash = '#case/2'")
    expect(page.locator("#trail strong")).to_have_text("Test case 2")
    with page.expect_response("**/api/case/1?*") as reply:
        held[0].continue_()
    reply.value.finished()
    page.wait_for_timeout(100)
    expect(page.locator("#trail strong")).to_have_text("Test case 2")


def test_columns_beside_a_vector(opened: Callable[..., Any]) -> None:
    for kind in ("beside", "long"):
        page = opened(kind, "#case/2")
        expect(page.locator("#beside")).to_contain_text("thing")
        expect(page.locator("#neighbours article").first).to_contain_text("thing")
        expect(page.locator("#neighbours article svg").first).to_be_visible()
        was = answer(page)
        expect(page.locator("#line")).to_have_count(int(kind == "long"))  # many fields without names say nothing
        expect(page.locator(".fields input")).to_have_count(5 if kind == "beside" else 0)
        page.locator("#ask-it").click()
        expect(page.locator("#trail")).to_contain_text("Your vector")
        expect(page.locator("#prediction")).to_have_text(was)
        expect(page.locator("#notice")).to_be_hidden()
        assert fits(page)


def test_data_is_shown_as_text(opened: Callable[..., Any], models: dict[str, Path]) -> None:
    model = Model.load(models["table"])
    assert model.cases is not None
    hostile = int(np.flatnonzero(model.cases.labels == HOSTILE)[0])
    page = opened("table", f"#case/{hostile}")
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


def test_pictures_of_ones_own(opened: Callable[..., Any], tmp_path: Path) -> None:
    page = opened("images")
    expect(page.locator("#prediction")).to_be_visible()
    (image,), _ = pictures(1, seed=9)
    page.locator("#file").set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": png(image[0])})
    expect(page.locator("#trail")).to_contain_text("Your picture")
    assert "#asked/" in page.url
    mine = page.url
    was = answer(page)
    page.locator("#random").click()
    expect(page.locator("#trail")).to_contain_text("Test case")
    page.goto(mine)
    expect(page.locator("#prediction")).to_have_text(was)
    assert page.expected_faults == []
    for name, data, words in (
        ("words.jpg", b"no picture at all", "no readable image"),
        ("dot.png", png(np.zeros((1, 1), np.uint8)), "1×1 pixels: too few"),
        ("large.png", bytes(9_000_000), "The file has 9.0 MB; at most 8 are taken"),
    ):
        (tmp_path / name).write_bytes(data)
        page.locator("#file").set_input_files(tmp_path / name)
        expect(page.locator("#notice")).to_contain_text(words)
        expect(page.locator("#prediction")).to_have_text(was)
    # A browser tells its console of every answer that is an error.
    assert len(page.expected_faults) == 2
    page.expected_faults.clear()
    page.locator("#random").click()
    expect(page.locator("#notice")).to_be_hidden()


def test_a_row_of_ones_own(opened: Callable[..., Any]) -> None:
    page = opened("table", "#case/3")
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
    expect(page.locator("#notice")).to_contain_text("column 'size' is 'large', no number")
    page.expected_faults.clear()
    page.get_by_text("Paste a line of a CSV file").click()
    page.locator("#paste").fill('0.5, 3.25, "red"')
    page.locator("#fill").click()
    expect(page.locator("#notice")).to_be_hidden()
    expect(field).to_have_value("0.5")
    url = page.url
    page.locator("#ask-it").click()
    expect(page).not_to_have_url(url)  # the answer is there, and the form is drawn anew
    expect(page.locator("#notice")).to_be_hidden()
    page.get_by_text("Paste a line of a CSV file").click()
    page.locator("#paste").fill("1,2")
    page.locator("#fill").click()
    expect(page.locator("#notice")).to_contain_text("2 values for 3 fields")


def test_vectors_and_what_a_model_without_test_cases_says(opened: Callable[..., Any]) -> None:
    page = opened("vectors")
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


def test_what_would_change_an_answer_is_marked(opened: Callable[..., Any]) -> None:
    page = opened("table", "#cases")
    page.locator("#only-unsure").check(force=True)
    expect(page.locator("#count")).to_contain_text("least sure first")
    page.locator("#list a").first.click()
    expect(page.locator("#prediction")).to_be_visible()
    was = answer(page)
    page.locator("#what-if").click()
    expect(page.locator("#counterfactual")).to_contain_text("it would be")
    expect(page.locator("article.marked").first).to_be_visible()
    page.locator("#forget-these").click()
    expect(page.locator("#comparison")).to_contain_text("The answer was")
    assert answer(page).partition(",")[0] != was.partition(",")[0]


def test_a_server_that_is_gone_is_told(opened: Callable[..., Any]) -> None:
    page = opened("images")
    expect(page.locator("#prediction")).to_be_visible()
    page.route("**/api/change*", lambda route: route.abort())
    page.locator("#what-if").click()
    expect(page.locator("#notice")).to_contain_text("The server does not answer")
    page.expected_faults.clear()


def test_an_address_of_nothing_leads_to_the_first_answer(opened: Callable[..., Any]) -> None:
    page = opened("table", "#memory/999999")
    expect(page.locator("#prediction")).to_be_visible()
    expect(page.locator("#notice")).to_contain_text("is not in the memory")
    page.expected_faults.clear()


@pytest.mark.parametrize("kind", ["table", "images", "vectors"])
def test_every_view_fits_at_both_sizes(opened: Callable[..., Any], kind: str) -> None:
    page = opened(kind, "#memory/1")
    expect(page.locator("#prediction")).to_be_visible()
    page.locator("#what-if").click()
    expect(page.locator("#counterfactual")).to_be_visible()
    page.locator("#other").evaluate("details => { details.open = true; }")
    assert fits(page)
    for view in ("cases", "calibration"):
        page.locator(f"#to-{view}").click()
        expect(page.locator(f"#{view} .card").first).to_be_visible()
        assert fits(page)
