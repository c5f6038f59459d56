// The answer to a query.
"use strict";

function drawTrail() {
  const steps = trail.slice(-5).map((name, i, all) => (i === all.length - 1
    ? h("strong", {}, queryTitle(name)) : [h("a", { href: `#${name}` }, queryTitle(name)), h("span", {}, "›")]));
  const [kind, which] = current.query.split("/");
  const step = (to, id, sign, words) => kind === "case" && to >= 0 && to < about.cases
    && h("a", { href: `#case/${to}`, className: "button", id, title: `${words} (key ${sign})`, "aria-label": words }, sign);
  replace($("trail"),
    trail.length > 1 && h("a", { href: `#${trail.at(-2)}`, className: "button", id: "back" }, "‹ Back"),
    steps.flat(),
    h("span", { className: "steps" }, [
      step(Number(which) - 1, "previous-case", "←", "Previous test case"),
      step(Number(which) + 1, "next-case", "→", "Next test case")].filter(Boolean)));
}

function drawVerdict() {
  const { label, query, answer } = current;
  if (label === null) return null;
  const right = label === answer.prediction;
  const words = query.startsWith("memory/")
    ? `It is in memory as ${label}, and left out for this answer. The others ${right ? "agree" : "disagree"}.`
    : `${right ? "✓ Right" : "✗ Wrong"}: its label is ${label}.`;
  return h("p", { className: right ? "good" : "bad", id: "verdict" }, words);
}

function predictionSetText() {
  const { set } = current.answer, { added, forgotten } = about.state;
  const listed = set.slice(0, 12).join(", ") + (set.length > 12 ? `, and ${set.length - 12} more` : "");
  const words = set.length === about.classes.length ? "every class" : `{${listed}}`;
  const note = added || forgotten ? " (calibrated before the changes)" : "";
  return [`90 % set: ${words}${note}`, " ",
    h("span", { className: "quiet" }, "Such sets held the true class of nine in ten held-out rows.")];
}

function drawNearest({ nearest }) {
  if (!nearest) return null;
  const distance = formatNumber(nearest.distance, 4), usual = formatNumber(nearest.usual, 4);
  return h("p", { id: "nearest", className: nearest.far ? "bad" : "quiet" }, nearest.far
    ? `Far from the memory: its nearest neighbour is at distance ${distance}, usually at ${usual}. Do not rely on it.`
    : `Nearest neighbour at distance ${distance}: farther than for ${Math.floor(nearest.percentile)} % of held-out rows.`);
}

function drawNovelty({ novelty, nearest }) {
  if (novelty === null || (nearest && nearest.far)) return null;
  const novel = novelty <= 0.05;
  return h("p", { id: "novelty", className: novel ? "bad" : "quiet" },
    `${novel ? "Maybe a new class: only" : "Novelty:"} ${percent(novelty)} of held-out rows were as unlike the memory.`);
}

// Columns stored beside a vector, which the model does not read.
const drawBeside = (example) => h("dl", { className: "values scroll", id: "beside" },
  values(example).flatMap(({ name, text }) => [h("dt", {}, name), h("dd", { title: text }, shorten(text))]));

// A row that was just added may have a very small weight.
function drawAdded({ neighbours }) {
  if (!before || before.row === undefined) return null;
  const added = neighbours.find((one) => one.id === before.row);
  if (!added || added.weight >= 0.001) return null;
  const others = neighbours.filter((one) => one.id !== added.id && one.label !== added.label).length;
  return h("p", { className: "note", id: "added-weighs" }, `Row ${added.id} is in memory, and it weighs `,
    added.weight < 0.0001 ? "less than 0.01 %" : `${formatNumber(100 * added.weight, 1)} %`,
    2 * others >= neighbours.length - 1 ? ": the rows around it carry other labels." : ".",
    " It is among the cards, where it can be forgotten.");
}

// Whether the last change is the only one since the previous answer.
const onlyChange = () => before !== null && current.state.version === before.version + 1;

function drawBars(answer) {
  const compared = onlyChange();
  const was = (label) => compared && before.answer.probabilities.find((entry) => entry.label === label).p;
  const row = (name, colour, p, ...mark) =>
    [name, bar(colour, p, ...mark), h("span", { className: "number" }, percent(p))];
  // Classes with negligible probability are summed, unless there is only one.
  const spoken = answer.probabilities.filter((entry, i) => i === 0 || entry.p >= 0.001).slice(0, 6);
  const heads = spoken.length + 1 === answer.probabilities.length ? answer.probabilities.slice(0, 6) : spoken;
  const rest = answer.probabilities.slice(heads.length);
  return h("div", { className: "bars", id: "bars" },
    heads.flatMap(({ label, p }) => row(labelled(label), colour(label), p,
      compared && h("b", { "--was": `calc(${100 * was(label)}% - 1px)`, title: `before: ${percent(was(label))}` }))),
    rest.length ? row(h("span", { className: "quiet" }, plural(rest.length, "other")), "var(--quiet)",
      rest.reduce((sum, entry) => sum + entry.p, 0)) : null);
}

function drawComparison(answer) {
  if (!before) return null;
  const was = before.answer;
  if (!onlyChange()) {
    return h("p", { className: "comparison", id: "comparison" }, before.words,
      " Another client changed the memory in between, so the answers before and after are not compared.");
  }
  const still = was.prediction === answer.prediction && Math.abs(was.confidence - answer.confidence) < 0.0005;
  const words = still ? "The answer stays as it was."
    : `The answer was ${was.prediction} (${percent(was.confidence)}) and is now ${answer.prediction} `
      + `(${percent(answer.confidence)}).`;
  return h("p", { className: "comparison", id: "comparison" }, before.words, " ", words);
}

function drawCounterfactual() {
  if (!counterfactual) return null;
  const { ids, how, label, turned } = counterfactual, { prediction } = current.answer, n = ids.length, one = n === 1;
  const outcome = `${counterfactual.prediction} (${percent(counterfactual.confidence)})`;
  if (!turned) {
    return h("p", { className: "note", id: "counterfactual" }, n === 0
      ? `Nothing: no neighbour votes for ${prediction}.`
      : `Not found: with the ${n} heaviest for ${prediction} labelled ${label}, it would still be ${outcome}.`);
  }
  const link = (id, i) => [i ? ", " : "", h("a", { href: `#memory/${id}` }, String(id))];
  const refitted = { "class means": ", the class means refitted, ", "linear classifier": ", the linear classifier refitted, " };
  const then = refitted[current.answer.null.of];
  const forgets = how === "forget", rows = one ? ["row ", link(ids[0], 0)[1]] : [`these ${n} rows`];
  const list = one ? [] : [": ", ...ids.slice(0, 12).flatMap(link), n > 12 ? ` and ${n - 12} more` : ""];
  return h("div", { className: "note stack", id: "counterfactual" },
    h("p", {}, forgets ? "Without " : "Were ", rows, forgets ? "" : ` labelled ${label}`, then || (forgets ? " " : ", "), `it would be ${outcome}`,
      list, one ? ". It is marked below." : ". They are marked below."),
    forgets && h("div", {}, h("button", { id: "forget-these", onclick: handler(() => forget(ids)) },
      one ? "Forget it" : `Forget these ${n}`)));
}

function drawAnswer() {
  const { answer, example, query, label } = current;
  const ours = query.startsWith("memory/");
  const choose = h("select", { id: "add-label", "aria-label": "Label",
    onchange: () => { chosenLabel = { query, label: choose.value }; } },
    about.classes.map((name) => h("option", { value: name }, name)),
    h("option", { value: NEW_CLASS }, "a new class …"));
  choose.value = chosenLabel && chosenLabel.query === query ? chosenLabel.label : label || answer.prediction;
  replace($("answer"), h("div", { className: "stack" },
    h("div", { className: "query" },
      example.picture && picture(example.picture, queryTitle(query)),
      h("div", { className: "stack" },
        h("p", { className: "prediction", id: "prediction" }, answer.prediction,
          h("small", {}, `, ${confidenceText(answer.confidence)}`)),
        drawVerdict(),
        answer.abstains && h("p", { className: "bad" }, `Below ${percent(about.abstain)} it abstains.`),
        drawNearest(answer), drawNovelty(answer))),
    about.kind === "vectors" && example.columns && drawBeside(example),
    h("p", { id: "set" }, predictionSetText()),
    drawComparison(answer),
    drawAdded(answer),
    drawBars(answer),
    h("div", { className: "row" },
      h("button", { id: "what-if", onclick: handler(findCounterfactual) }, "What would change this?",
        h("kbd", {}, "W")),
      ours && h("button", { id: "forget-this", onclick: handler(() => forget([Number(query.slice(7))])) },
        "Forget this row")),
    drawCounterfactual(),
    !ours && h("div", { className: "row" },
      h("label", { htmlFor: "add-label" }, "Add to memory as"), choose,
      h("button", { id: "add", onclick: handler(() => add(choose.value)) }, "Add"))));
}

async function findCounterfactual() {
  const { query } = current;
  $("what-if").disabled = true;
  try {
    const response = await api(`/api/change?query=${encodeURIComponent(query)}`);
    if (current.query !== query) return;
    counterfactual = response;
    await showMarked(query, response.ids);
  } finally {
    draw();
    $("what-if").focus({ preventScroll: true });
  }
}

// Loads as many neighbours as it takes to show these.
async function showMarked(query, ids) {
  const has = (answer) => ids.filter((id) => answer.neighbours.some((one) => one.id === id)).length;
  if (has(current.answer) === ids.length) return;
  const whole = await api(`/api/${query}?shown=${MOST}`);
  if (current.query !== query || whole.state.version !== current.state.version) return;
  shown = Math.max(...whole.answer.neighbours.map((one, i) => (ids.includes(one.id) ? i + 1 : 1)));
  await show(query);
}
