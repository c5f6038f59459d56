// Suspicious labels.
"use strict";

let review = null;  // the audit: loaded issues, the position of the one on the page, and decisions that can be undone

async function drawLabels() {
  const number = ++requestNumber;
  if (!review) replace($("labels"), quiet(`Auditing ${plural(about.state.memory, "label")} …`));
  const page = await api(`/api/issues?count=${PAGE}`);
  if (number !== requestNumber) return;
  await checkModel(page.state);
  drawChanges();
  review = { ...page, at: 0, history: review ? review.history : [] };
  const first = review.issues.findIndex((issue) => !issue.decision);
  await showIssue(Math.max(first, 0));
}

// Shows a row whose label is in doubt, beside its neighbours.
async function showIssue(at) {
  const number = ++requestNumber;
  if (at >= review.issues.length && review.issues.length < review.total) {
    const page = await api(`/api/issues?${new URLSearchParams({ start: review.issues.length, count: PAGE })}`);
    review.issues.push(...page.issues);
  }
  review.at = Math.max(0, Math.min(at, review.issues.length - 1));
  const issue = review.issues[review.at];
  const response = issue ? await api(`/api/memory/${issue.id}?shown=${initialCount()}`) : null;
  if (number !== requestNumber) return;
  if (response) {
    await checkModel(response.state);
    [current, before, counterfactual] = [response, null, null];
    $("to-ask").href = `#${response.query}`;
  }
  const focus = document.activeElement && document.activeElement.id;
  replace($("labels"), h("div", { className: "stack" }, drawReview(), response && h("div", { className: "ask" },
    h("div", { className: "side" }, drawIssue(issue, response)),
    h("div", { className: "main stack" },
      h("div", { className: about.kind === "images" ? "neighbours pictures" : "neighbours" },
        response.answer.neighbours.map(drawNeighbour)))),
  h("h2", {}, "Next"),
  h("div", { className: about.kind === "images" ? "list pictures" : "list" },
    review.issues.slice(review.at + 1, review.at + 13).map((issue, i) => drawNext(issue, review.at + 1 + i)))));
  if (focus && $(focus)) $(focus).focus({ preventScroll: true });
}

function drawReview() {
  const { rows, flagged, wrong, wrong_low: low, wrong_high: high, evident, left, decided, issues } = review;
  const counted = ["keep", "relabel", "forget"].map((name) => [name, issues.filter((one) => one.decision === name).length]);
  const list = counted.filter(([, n]) => n).map(([name, n]) => `${n} to ${name}`).join(", ");
  return h("div", { className: "card stack" },
    h("p", { id: "review-words" }, flagged === 0 ? `None of ${plural(rows, "label")} seems wrong. Least credible first.`
      : [h("strong", {}, `${plural(flagged, "label")} of ${rows.toLocaleString("en")}`),
        evident ? ` ${flagged === 1 ? "is" : "are"} probably wrong; ` : " least credible; ",
        `${Math.round(wrong).toLocaleString("en")} expected to be wrong `,
        `(${low.toLocaleString("en")} … ${high.toLocaleString("en")}, at 95 %${evident ? "" : "; a guess, since label noise is not evident"}). Least credible first.`]),
    bar("var(--accent)", left ? Math.min(1, decided / left) : 1),
    h("div", { className: "row" },
      h("span", { id: "decided" }, `${decided} reviewed${list ? `: ${list}` : ""}; ${left} left to review`),
      h("button", { id: "apply", className: "main-button", disabled: !decided, onclick: handler(applyDecisions),
        title: "Change the memory; answers change at once" }, `Apply ${plural(decided, "decision")}`),
      h("a", { className: "button", id: "export", href: "/api/decisions.csv", download: "decisions.csv",
        title: "For attnknn audit MODEL --apply decisions.csv" }, "Export as CSV")));
}

function drawIssue(issue, { example, answer }) {
  const choose = h("select", { id: "other-label", "aria-label": "Another label" },
    about.classes.map((name) => h("option", { value: name }, name)));
  choose.value = issue.label || (issue.predicted === issue.given ? answer.prediction : issue.predicted);
  const key = (name) => h("kbd", {}, name);
  const button = (decision, words, label) => h("button", { id: `decide-${decision}`,
    className: issue.decision === decision ? "main-button" : "", onclick: handler(() => decide(decision, label())) }, words);
  return h("section", { className: "card stack", id: "issue", "aria-live": "polite" },
    h("div", { className: "query" },
      example.picture && picture(example.picture, `Row ${issue.id}`),
      h("div", { className: "stack" },
        h("p", {}, "labelled ", labelled(issue.given)),
        h("p", {}, issue.predicted === issue.given ? "probably right" : ["probably ", labelled(issue.predicted)]),
        h("p", { className: "quiet" }, `${percent(issue.quality)} probability that the label is right`))),
    issue.conflicting > 0 && h("p", { className: "bad" },
      `${plural(issue.conflicting, "identical row has", "identical rows have")} another label.`),
    !example.picture && values(example).length > 0 && drawBeside(example),
    strip(example),
    h("div", { className: "row" },
      button("keep", ["Keep ", key("K")], () => ""),
      button("relabel", ["Relabel ", key("R")], () => choose.value), choose,
      button("forget", ["Forget ", key("F")], () => "")),
    h("div", { className: "row" },
      h("button", { id: "previous-issue", disabled: review.at === 0, "aria-label": "Previous",
        onclick: handler(() => showIssue(review.at - 1)) }, "←"),
      h("button", { id: "next-issue", disabled: review.at + 1 >= review.total, "aria-label": "Next",
        onclick: handler(() => showIssue(review.at + 1)) }, "→"),
      h("button", { id: "undo", disabled: !review.history.length, onclick: handler(undo) }, ["Undo ", key("U")]),
      h("span", { className: "quiet" }, `row ${issue.id}`)));
}

function drawNext(issue, at) {
  return h("a", { className: "card", href: "#labels", "data-id": issue.id,
    onclick: (event) => { event.preventDefault(); reportErrors(() => showIssue(at)); } },
    issue.example.picture && picture(issue.example.picture, "", { loading: "lazy" }),
    h("span", { className: "row" }, labelled(issue.given), issue.predicted !== issue.given
      && [h("span", { className: "quiet" }, "→"), labelled(issue.predicted)]),
    h("span", { className: "quiet" }, issue.decision ? `decided: ${issue.decision}` : percent(issue.quality)),
    strip(issue.example));
}

async function note(issue, decision, label) {
  const { decided } = await api("/api/decide", { id: issue.id, decision, label });
  Object.assign(issue, { decision, label });
  review.decided = decided;
}

async function decide(decision, label) {
  const issue = review.issues[review.at], { decision: was, label: wasLabel } = issue;
  await note(issue, decision, label);
  review.history.push({ at: review.at, decision: was, label: wasLabel });
  await showIssue(review.at + 1);
}

async function undo() {
  const last = review.history.pop();
  await note(review.issues[last.at], last.decision, last.label);
  await showIssue(last.at);
}

async function applyDecisions() {
  const done = await api("/api/apply", {});
  review = null;
  await checkModel(done.state);
  await drawLabels();
}
