// Test cases.
"use strict";

async function drawCases(start = 0) {
  const number = ++requestNumber;
  const place = $("cases");
  if (!about.cases) return replace(place, noCases("This model has no test cases"));
  const page = await api(`/api/cases?${new URLSearchParams({ ...caseFilter, start, count: PAGE })}`);
  if (number !== requestNumber) return;
  await checkModel(page.state);
  if (start === 0) {
    replace(place, caseTools(), h("p", { id: "count", className: "quiet" }, countWords(page)),
      h("div", { className: about.kind === "images" ? "list pictures" : "list", id: "list" }),
      h("div", { className: "more", id: "cases-more" }));
  }
  $("list").append(...page.cases.map(drawCase));
  const next = start + page.cases.length;
  replace($("cases-more"), next < page.total && h("button", { onclick: handler(() => drawCases(next)) },
    `Show more: ${next} of ${page.total} are here`));
}

const noCases = (title) => h("div", { className: "card stack" }, h("h2", {}, title),
  h("p", {}, "Labelled rows held out of the memory show where a model is wrong, and whether its ",
    "probabilities are calibrated. A classifier saved from Python has none; ",
    h("code", {}, "attnknn fit SOURCE -o MODEL --test 0.1"),
    " holds out a tenth of the rows and stores them with the model."));

function countWords({ total, of, wrong }) {
  const { filter, label, least } = caseFilter;
  const those = label ? ` labelled ${label}` : "";
  const all = `${plural(of, "test case")}, ${wrong || "none"} of them wrong`;
  const matches = `${total || "none"}${those}`;
  if (filter === "confident-wrong") return `${all}; ${matches} ${100 * least} % sure or more, surest first.`;
  return `${all}${label ? `; ${matches}` : ""}${filter === "unsure" ? "; least sure first" : ""}.`;
}

function caseTools() {
  const filters = { all: "All", wrong: "Wrong", "confident-wrong": "Confident and wrong", unsure: "Unsure" };
  const again = (name) => (event) => {
    const { id } = event.target;
    caseFilter[name] = event.target.value;
    reportErrors(async () => { await drawCases(); if ($(id)) $(id).focus(); });
  };
  const select = (id, name, pairs) => h("select", { id, onchange: again(name) },
    pairs.map(([value, text]) => h("option", { value, selected: value === caseFilter[name] }, text)));
  const radio = ([value, text]) => h("label", {}, h("input", { type: "radio", name: "filter", id: `only-${value}`,
    value, checked: caseFilter.filter === value, onchange: again("filter") }), h("span", {}, text));
  const classes = about.classes.map((name) => [name, name]);
  return h("div", { className: "tools" },
    h("fieldset", { className: "choice", "aria-label": "Which test cases" }, Object.entries(filters).map(radio)),
    h("label", { className: "inline" }, "label", select("only", "label", [["", "any"], ...classes])),
    caseFilter.filter === "confident-wrong" && h("label", { className: "inline" }, "confidence from",
      select("least", "least", [50, 70, 80, 90, 95, 99].map((entry) => [String(entry / 100), `${entry} %`]))));
}

function drawCase({ case: which, label, prediction, confidence, right, example }) {
  const line = values(example).slice(0, 8).map(({ name, text }) => `${name} ${text}`).join(" · ");
  return h("a", { className: `card ${right ? "" : "wrong"}`, href: `#case/${which}`, "data-case": which },
    example.picture && picture(example.picture, "", { loading: "lazy" }),
    h("span", { className: "row" }, labelled(label),
      ...(right ? [] : [h("span", { className: "bad" }, "predicted as"), labelled(prediction)])),
    h("span", { className: "quiet" }, `${about.kind === "images" ? "" : `case ${which} · `}${confidenceText(confidence)}`),
    strip(example),
    line && h("span", { className: "quiet line" }, line));
}
