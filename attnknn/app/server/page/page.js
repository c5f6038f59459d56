// The page on top of the server's JSON interface. Data is inserted as text, never as HTML.
"use strict";

const $ = (id) => document.getElementById(id);
const HUES = ["#3b6fd4", "#e07b1f", "#2f9e5b", "#cf3f4f", "#8a5cc9", "#8a6246", "#d4569f", "#5f7a8c", "#a89a12",
  "#14a0b0"];
const MORE = 24, MOST = 64, FIELDS = 6, PAGE = 48;
let about = null;           // the model, from /api/model
let current = null;         // the response on the page
let before = null;          // the answer before the last change, and a description of the change
let counterfactual = null;  // of the answer, once requested
let shown = 0;              // neighbours
let allColumns = false;
let weightsOpen = false;    // whether the help on weights is open
let chosenLabel = null;     // the label chosen for the current query
let trail = [];             // names of the last queries
let requestNumber = 0;      // responses to earlier requests are dropped
const caseFilter = { filter: "all", label: "", least: "0.8" };

// Elements

function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function svg(tag, props, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const replace = (place, ...children) => place.replaceChildren(...children.flat().filter((child) => child));
const quiet = (...words) => h("p", { className: "quiet" }, ...words);

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

// Text and numbers

const plural = (n, one, more) => `${n.toLocaleString("en")} ${n === 1 ? one : more || one + "s"}`;
const formatNumber = (value, digits = 3) => Number(value.toPrecision(digits)).toString().replace("-", "−");
const capitalise = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function percent(p) {
  if (p <= 0) return "0 %";
  if (p >= 1) return "100 %";
  if (p < 0.001) return "< 0.1 %";
  return p > 0.999 ? "> 99.9 %" : `${(100 * p).toFixed(1)} %`;
}

function confidenceText(p) {
  if (p > 0.999) return "over 99.9 % sure";
  return p > 0.99 ? `${(100 * p).toFixed(1)} % sure` : `${Math.round(100 * p)} % sure`;
}

function hue(label) {
  const index = Math.max(about.classes.indexOf(label), 0);
  return index < HUES.length ? HUES[index] : `hsl(${(index * 137.5) % 360} 55% 52%)`;
}

const labelled = (label) => h("span", { className: "label", "--hue": hue(label) }, label);

const bar = (colour, part, ...more) =>
  h("span", { className: "bar", "--hue": colour, "--part": `${100 * part}%` }, h("i"), ...more);

function queryTitle(query) {
  const [kind, which] = query.split("/");
  if (kind === "case") return `Test case ${which}`;
  if (kind === "memory") return `Row ${which}`;
  return { images: "Your picture", table: "Your row", vectors: "Your vector" }[about.kind];
}

// The server

async function api(path, sent, type) {
  const headers = { "Content-Type": type || "application/json" };
  const options = sent === undefined ? {} : { method: "POST", headers, body: type ? sent : JSON.stringify(sent) };
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new Error("the server does not answer; is it still running?");
  }
  const value = await reply.json().catch(() => ({ error: "the server is busy; try again in a moment" }));
  if (!reply.ok) throw new Error(value.error || `the server answered ${reply.status}`);
  return value;
}

// Runs an action; an error is shown in one line.
async function reportErrors(work) {
  notice("");
  document.body.setAttribute("aria-busy", "true");
  try {
    return await work();
  } catch (error) {
    notice(capitalise(error.message));
  } finally {
    document.body.removeAttribute("aria-busy");
  }
}

const handler = (work) => () => reportErrors(work);

// Queries

const firstQuery = () => (about.cases ? "case/0" : `memory/${about.state.first}`);
const initialCount = () => (about.kind === "images" ? 10 : 9);  // whole rows of cards on a desktop

async function show(query) {
  const number = ++requestNumber;
  const added = before && before.row !== undefined ? `&row=${before.row}` : "";
  const response = await api(`/api/${query}?shown=${shown}${added}`);
  if (number === requestNumber) await showResponse(response);
}

// Another model has other test cases, fields and colours: reload the page.
function reload() {
  requestNumber += 1;
  history.replaceState(null, "", location.pathname);
  location.reload();
  return new Promise(() => {});
}

async function checkModel(state) {
  if (state.model !== about.state.model) await reload();
  about.state = state;
}

async function send(sent, type) {
  const number = ++requestNumber;
  shown = initialCount();
  const response = await api(`/api/ask?shown=${shown}`, sent, type);
  if (number !== requestNumber) return;
  before = counterfactual = null;
  await showResponse(response);
  history.pushState(null, "", `#${response.query}`);
  view("ask");
}

async function showResponse(response) {
  await checkModel(response.state);
  current = response;
  if (trail.includes(response.query)) trail.length = trail.indexOf(response.query);
  trail = [...trail, response.query].slice(-12);
  $("to-ask").href = `#${response.query}`;
  drawChanges();
  draw();
}

// Draws the whole view and restores the focus.
function draw() {
  const focus = document.activeElement && document.activeElement.id;
  drawTrail();
  drawAnswer();
  drawForm();
  drawNeighbours();
  if (focus && $(focus)) $(focus).focus({ preventScroll: true });
}

const sendPicture = (file) => reportErrors(async () => {
  const most = about.limits.image_bytes / 1e6;
  const has = (file.size / 1e6).toFixed(1);
  if (file.size > 1e6 * most) throw new Error(`the file has ${has} MB; at most ${most} MB are accepted`);
  await send(file, file.type.startsWith("image/") ? file.type : "image/unknown");
});

// After a change the same query is answered again, and both answers are shown.
async function changed(work, words) {
  const was = current;
  const done = await work();
  const gone = (done.ids || []).map((id) => `memory/${id}`);
  counterfactual = null;
  await checkModel(done.state);
  trail = trail.filter((name) => !gone.includes(name));
  if (gone.includes(was.query)) {
    before = null;
    drawChanges();
    location.hash = `#${trail.at(-1) || firstQuery()}`;
    return;
  }
  before = { answer: was.answer, words: words(done), version: was.state.version, row: done.id, label: done.label };
  await show(was.query);
}

const NEW_CLASS = " new class";  // no label begins with a space

const add = (label) => {
  const isNew = label === NEW_CLASS;
  const name = isNew ? (prompt("Name of the new class") || "").trim() : label;
  return name && changed(() => api("/api/add", { query: current.query, label: name, new_class: isNew }),
    (done) => `Added as ${name}: row ${done.id}.`);
};

const forget = (ids) => changed(() => api("/api/forget", { ids }),
  () => (ids.length === 1 ? `Row ${ids[0]} forgotten.` : `${ids.length} rows forgotten.`));

async function reset() {
  if (!confirm("Go back to the model on disk? Unsaved changes are lost.")) return;
  await api("/api/reset", {});
  await reload();
}

async function save() {
  if (!confirm("Write the changed model to its folder on disk?")) return;
  await api("/api/save", {});
  await reload();  // test cases in the memory are removed from the test cases, which changes their numbers
}

function drawChanges() {
  const { added, forgotten, memory } = about.state;
  const parts = [added && `${plural(added, "row")} added`, forgotten && `${plural(forgotten, "row")} forgotten`];
  $("changes").hidden = !(added || forgotten);
  replace($("changes"),
    h("strong", {}, plural(added + forgotten, "change"), ", not saved"),
    h("span", {}, parts.filter(Boolean).join(", "), about.can_save ? "." : "; kept only while this server runs."),
    about.can_save && h("button", { id: "save", onclick: handler(save) }, "Save to disk"),
    about.can_reset && h("button", { id: "reset", onclick: handler(reset) }, "Undo all"));
  const reads = {
    images: () => `pictures of ${about.shape[2]} × ${about.shape[1]} pixels`,
    table: () => `rows of ${plural(about.columns.length, "column")}`,
    vectors: () => `vectors of ${plural(about.dim, "number")}`,
  }[about.kind]();
  const classes = plural(about.classes.length, "class", "classes");
  const words = [`${plural(memory, "example")} in memory`, reads, classes];
  $("about").textContent = words.map((entry) => entry.replaceAll(" ", "\u00a0")).join(" · ");
}

// The answer

function drawTrail() {
  const steps = trail.slice(-5).map((name, i, all) => (i === all.length - 1
    ? h("strong", {}, queryTitle(name)) : [h("a", { href: `#${name}` }, queryTitle(name)), h("span", {}, "›")]));
  const [kind, which] = current.query.split("/");
  const step = (to, sign, words) => kind === "case" && to >= 0 && to < about.cases
    && h("a", { href: `#case/${to}`, className: "button", id: `go ${sign}`, title: words, "aria-label": words }, sign);
  replace($("trail"),
    trail.length > 1 && h("a", { href: `#${trail.at(-2)}`, className: "button", id: "back" }, "‹ Back"),
    steps.flat(),
    step(Number(which) - 1, "←", "Previous test case"), step(Number(which) + 1, "→", "Next test case"));
}

function drawVerdict() {
  const { label, query, answer } = current;
  if (label === null) return null;
  const right = label === answer.prediction;
  const words = query.startsWith("memory/")
    ? `It is in memory as ${label}, and left out for this answer. The others ${right ? "agree" : "disagree"}.`
    : `${right ? "Right" : "Wrong"}: its label is ${label}.`;
  return h("p", { className: right ? "good" : "bad", id: "verdict" }, words);
}

function predictionSetText() {
  const { set } = current.answer, { added, forgotten } = about.state;
  const listed = set.slice(0, 12).join(", ") + (set.length > 12 ? `, and ${set.length - 12} more` : "");
  const words = set.length === about.classes.length ? "every class" : `{${listed}}`;
  const note = added || forgotten ? " (calibrated before the changes)" : "";
  return [`90 % set: ${words}${note}`, " ",
    h("span", { className: "quiet" }, "Such sets held the true class nine times in ten, on rows that were held out.")];
}

function drawNearest({ nearest }) {
  if (!nearest) return null;
  const distance = formatNumber(nearest.distance, 4), usual = formatNumber(nearest.usual, 4);
  return h("p", { id: "nearest", className: nearest.far ? "bad" : "quiet" }, nearest.far
    ? `Far from the memory: nearest neighbour at ${distance}, usually ${usual}; do not rely on it.`
    : `Nearest neighbour at ${distance}, percentile ${Math.floor(nearest.percentile)} of usual distances.`);
}

function drawNovelty({ novelty, nearest }) {
  if (novelty === null) return null;
  const novel = novelty <= 0.05;
  return h("div", { id: "novelty" },
    h("div", { className: "bars", title: "share of held-out rows at least as unlike the memory" },
      h("span", { className: "quiet" }, "novelty, p"), bar(novel ? "var(--bad)" : "var(--quiet)", novelty),
      h("span", { className: "number" }, percent(novelty))),
    novel && !nearest.far && h("p", { className: "bad" }, `Novel: ${percent(novelty)} of held-out rows are as unlike the memory.`));
}

// Columns stored beside a vector, which the model does not read.
const drawBeside = (example) => h("dl", { className: "values scroll", id: "beside" },
  values(example).flatMap(({ name, text }) => [h("dt", { title: name }, name), h("dd", {}, text)]));

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
    heads.flatMap(({ label, p }) => row(labelled(label), hue(label), p,
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
  const forgets = how === "forget", rows = one ? ["row ", link(ids[0], 0)[1]] : [`these ${n} rows`];
  const list = one ? [] : [": ", ...ids.slice(0, 12).flatMap(link), n > 12 ? ` and ${n - 12} more` : ""];
  return h("div", { className: "note stack", id: "counterfactual" },
    h("p", {}, forgets ? "Without " : "Were ", rows, forgets ? " " : ` labelled ${label}, `, `it would be ${outcome}`,
      list, ". They are marked below where they are shown."),
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
    h("p", { id: "set", title: "Such sets held the true class nine times in ten, on rows that were held out." },
      predictionSetText()),
    drawComparison(answer),
    drawAdded(answer),
    drawBars(answer),
    h("div", { className: "row" },
      h("button", { id: "what-if", onclick: handler(findCounterfactual) }, "What would change this?"),
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
    if (current.query === query) counterfactual = response;
  } finally {
    draw();
    $("what-if").focus({ preventScroll: true });
  }
}

// Pictures, columns and vectors

function picture(address, words, props) {
  const small = Math.max(about.shape[1], about.shape[2]) < 100;
  return h("img", { src: address, alt: words, className: small ? "picture crisp" : "picture", ...props });
}

const hasFields = () => about.kind === "table" || (about.kind === "vectors" && about.dim <= (about.named ? 64 : 12));

// Values of an example by name; `off` is in standard deviations of the column.
function values(example) {
  if (example.columns) {
    const numeric = (about.columns || []).filter((column) => column.kind === "number");
    const scales = new Map(numeric.map((column) => [column.name, column.scale]));
    return Object.entries(example.columns).map(([name, value]) => {
      const off = scales.has(name) && value !== null ? Number(value) / scales.get(name) : null;
      return { name, value, text: value === null ? "–" : value, off };
    });
  }
  return dimensions(example);
}

function dimensions(example) {
  if (!example.vector || (about.dim > 64 && !about.named)) return [];  // long lists of unnamed numbers are not readable
  const { values: numbers, off } = example.vector;
  return numbers.slice(0, off.length).map((value, i) => (
    { name: about.names[i], value: String(value), text: formatNumber(value), off: off[i] }));
}

// The values of a neighbour beside the query's, those that differ most first.
function drawValues(example) {
  const beside = about.kind === "vectors" && example.columns;  // columns beside a vector are not compared
  const queryFields = new Map(beside ? [] : values(current.example).map((entry) => [entry.name, entry]));
  const all = values(example).map((entry) => {
    const queryField = queryFields.get(entry.name);
    const differs = queryField !== undefined && queryField.value !== entry.value;
    const difference = differs && entry.off !== null && queryField.off !== null ? entry.off - queryField.off : null;
    const distance = difference === null ? Number(differs) : Math.abs(difference);
    return { ...entry, queryField, differs, difference, distance };
  });
  if (!all.length) return null;
  const kept = allColumns ? all : [...all].sort((a, b) => b.distance - a.distance).slice(0, FIELDS);
  return h("dl", { className: "values" }, kept.flatMap(({ name, text, queryField, differs, difference, distance }) => [
    h("dt", { title: name }, name),
    h("dd", { className: !differs ? "same" : distance >= 0.5 ? "far" : "" },
      differs && h("small", {}, queryField.text, difference === null ? " → " : difference > 0 ? " ▲ " : " ▼ "), text)]));
}

// A vector as bars, with the query's as ticks over them.
function strip(example, query) {
  if (!example.vector) return null;
  const tall = (value) => 20 - 20 * Math.max(-1, Math.min(1, value / 3));
  const { off } = example.vector;
  const bars = off.map((value, i) => svg("rect", {
    class: "bar-of", x: i + 0.1, width: 0.8, y: Math.min(20, tall(value)), height: Math.abs(20 - tall(value)) + 0.3 }));
  const ticks = query && query.vector ? query.vector.off.map((value, i) => svg("rect", {
    class: "tick", x: i, width: 1, y: tall(value) - 0.9, height: 1.8 })) : [];
  const box = { class: "strip", viewBox: `0 0 ${off.length} 40`, preserveAspectRatio: "none", "aria-hidden": "true" };
  return svg("svg", box, ...bars, ...ticks);
}

// Neighbours

function drawNeighbours() {
  const { answer: { neighbours, rest, null: held }, example } = current;
  const fields = values(example);
  const few = neighbours.length > shown;  // with an added row of small weight
  const hold = `${plural(rest.count, "lighter neighbour")} hold${rest.count === 1 ? "s" : ""}`;
  const lighter = rest.count && `${hold} ${percent(rest.weight)} of the weight. `;
  const words = [
    lighter,
    held.share > 0.0005 && `Votes for it: ${percent(1 - held.share)} from neighbours, `
      + `${percent(held.share)} from the ${held.of}. `,
    fields.length && !(about.kind === "vectors" && example.columns)
      && "Small print is the query's value; bold is far from it. ",
    example.vector && "Bars are standard deviations from the memory's mean, and ticks the query's.",
  ];
  replace($("neighbours-head"),
    h("h2", {}, rest.count ? `${few ? "" : "The "}${neighbours.length}${few ? "" : " heaviest"} of `
      + `${neighbours.length + rest.count} neighbours` : plural(neighbours.length, "neighbour")),
    fields.length > FIELDS && h("label", { className: "row quiet" }, h("input", { type: "checkbox", id: "all-columns",
      checked: allColumns, onchange: (event) => { allColumns = event.target.checked; draw(); } }), "all columns"),
    quiet(...words.filter(Boolean)),
    h("details", { id: "weights", className: "quiet", open: weightsOpen,
      ontoggle: (event) => { weightsOpen = event.target.open; } }, h("summary", {}, "What is a weight?"),
      "A row's share of the votes. It depends on the distance, and on labels too: a row whose own neighbours carry ",
      "other labels counts for little, as its label is probably wrong."));
  const more = () => {
    shown = Math.min(MOST, shown + MORE);
    return show(current.query);
  };
  $("neighbours").className = about.kind === "images" ? "neighbours pictures" : "neighbours";
  replace($("neighbours"), neighbours.map(drawNeighbour), rest.count && neighbours.length < MOST
    && h("div", { className: "more" }, h("button", { id: "more", onclick: handler(more) }, "Show more")));
}

function drawNeighbour({ id, label, distance, weight, example }, _, all) {
  const agrees = label === current.answer.prediction;
  const marked = counterfactual && counterfactual.turned && counterfactual.ids.includes(id);
  return h("article", { className: `card one ${agrees ? "" : "other"} ${marked ? "marked" : ""}`, "data-id": id },
    h("a", { href: `#memory/${id}`, id: `neighbour-${id}`, title: `Ask for row ${id}` },
      example.picture && picture(example.picture, `Row ${id}`),
      h("span", { className: "top" }, labelled(label), !agrees && h("span", { className: "bad" }, "disagrees"),
        h("span", { className: "quiet", title: `distance ${distance}` }, `${formatNumber(distance, 2)} away`)),
      h("span", { className: "weight", title: "its share of the votes" },
        bar(hue(label), weight / (all[0].weight || 1)), h("span", { className: "number" }, percent(weight))),
      strip(example, current.example)),
    drawValues(example),
    h("div", { className: "foot quiet" }, h("span", {}, `row ${id}`),
      h("button", { className: "small", title: `Forget row ${id}`, "aria-label": `Forget row ${id}`,
        onclick: handler(() => forget([id])) }, "forget")));
}

// The form: a picture, a row or a vector

function drawForm() {
  const chance = about.cases && h("button", { type: "button", id: "random",
    onclick: () => { location.hash = `#case/${Math.floor(Math.random() * about.cases)}`; } }, "Random test case");
  const what = about.kind === "table" ? "row" : "vector";
  $("other-title").textContent = about.kind === "images" ? "Ask for another picture" : `Change the ${what} and ask`;
  if (about.kind === "images") return replace($("form"), pictureForm(chance));
  const fields = hasFields() ? columnFields() : [];
  const line = h("textarea", { id: "line", spellcheck: false, "aria-label": "Numbers" });
  if (current.example.vector) line.value = current.example.vector.values.join(", ");
  const ask = fields.length ? askFields : () => askLine(line.value);
  const paste = fields.length ? h("details", {}, h("summary", { className: "quiet" }, "Paste a line of a CSV file"),
    h("div", { className: "stack" },
      h("textarea", { id: "paste", spellcheck: false, "aria-label": "A line of a CSV file",
        placeholder: "values in the order of the fields" }),
      h("div", {}, h("button", { id: "fill", onclick: handler(fillFields) }, "Fill the fields")))) : null;
  return replace($("form"), h("div", { className: "stack" },
    h("form", { className: "stack", onsubmit: (event) => { event.preventDefault(); reportErrors(ask); } },
      fields.length ? h("div", { className: "scroll" }, h("div", { className: "fields" }, fields))
        : [quiet(`${about.dim} numbers, separated by commas or spaces`), line],
      h("div", { className: "row" }, h("button", { className: "main-button", id: "ask-it" }, "Ask"), chance)),
    paste));
}

function pictureForm(chance) {
  const [channels, high, wide] = about.shape;
  const file = h("input", { type: "file", id: "file", accept: "image/*", onchange: (event) => {
    if (event.target.files.length) sendPicture(event.target.files[0]);
    event.target.value = "";
  } });
  return h("div", { className: "stack" },
    h("label", { className: "drop", id: "drop" }, file, h("strong", {}, "Drop a picture here, or choose one"),
      h("span", { className: "quiet" }, `It is resized to ${wide} × ${high}${channels === 1 ? ", in grey" : ""}. `,
        `Up to ${about.limits.image_bytes / 1e6} MB; pasting works too.`)),
    chance && h("div", { className: "row" }, chance));
}

function columnFields() {
  const columns = about.columns || about.names.map((name) => ({ name, kind: "number" }));
  const fieldsOf = about.kind === "vectors" ? dimensions : values;
  const now = new Map(fieldsOf(current.example).map((entry) => [entry.name, entry.value]));
  return columns.map(({ name, kind, values: offered }, i) => h("label", { title: name }, h("span", {}, name),
    h("input", { name, id: `field-${i}`, value: now.get(name) ?? "", autocomplete: "off", placeholder: "missing",
      ...(kind === "number" ? { inputMode: "decimal" } : { list: `values-${i}` }) }),
    offered && h("datalist", { id: `values-${i}` }, offered.map((value) => h("option", { value })))));
}

const inputs = () => [...$("form").querySelectorAll(".fields input")];

const askFields = () => (about.kind === "vectors"
  ? send({ vector: inputs().map((input) => toNumber(input.value, input.name)) })
  : send({ row: Object.fromEntries(inputs().map((input) => [input.name, input.value])) }));

function toNumber(text, name) {
  const value = Number(text.trim().replace("−", "-"));
  if (text.trim() && Number.isFinite(value)) return value;
  throw new Error(`${name}: ${text.trim() ? `“${text.slice(0, 40)}” is not a number` : "no value"}; give a number`);
}

function askLine(text) {
  const parts = text.trim().replace(/^\[|\]$/g, "").split(/[\s,;]+/).filter(Boolean);
  const count = plural(parts.length, "number");
  if (parts.length !== about.dim) throw new Error(`${count}; this model was fitted on ${about.dim}`);
  return send({ vector: parts.map((part, i) => toNumber(part, `number ${i + 1}`)) });
}

// The cells of a line of CSV.
const cells = (line) => [...line.matchAll(/(?:^|[,;\t])\s*(?:"((?:[^"]|"")*)"|([^,;\t]*))/g)]
  .map(([, quoted, plain]) => (quoted === undefined ? plain.trim() : quoted.replaceAll('""', '"')));

function fillFields() {
  const texts = cells($("paste").value.trim().split("\n").at(-1)), fields = inputs();
  if (texts.length !== fields.length) throw new Error(`${plural(texts.length, "value")} for ${fields.length} fields`);
  fields.forEach((input, i) => { input.value = texts[i]; });
}

// Test cases

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

// Suspicious labels

const REVIEW_KEYS = { k: "decide-keep", r: "decide-relabel", f: "decide-forget", u: "undo", ArrowLeft: "previous-issue",
  ArrowRight: "next-issue" };
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
    h("p", { id: "review-words" }, h("strong", {}, `${plural(flagged, "label")} of ${rows.toLocaleString("en")}`),
      evident ? ` ${flagged === 1 ? "is" : "are"} probably wrong; ` : " least credible; ",
      `${Math.round(wrong).toLocaleString("en")} expected to be `,
      `(${low.toLocaleString("en")} … ${high.toLocaleString("en")}, at 95 %${evident ? "" : "; a guess, since label noise is not evident"}). Least credible first.`),
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

function reviewKey(event) {
  // Keys pressed before the next row is shown are dropped, so that no unseen row is decided.
  if ($("labels").hidden || !review || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const id = REVIEW_KEYS[event.key];
  if (id && $(id) && !document.body.hasAttribute("aria-busy")) $(id).click();
}

// Calibration

async function drawCalibration() {
  const number = ++requestNumber;
  const place = $("calibration");
  const { now, before: was, taken, state } = await api("/api/calibration");
  if (number !== requestNumber) return;
  await checkModel(state);
  drawChanges();
  if (!now) return replace(place, noCases("Calibration needs test cases"));
  const three = (value) => value.toFixed(3);
  const then = (name, words, otherwise) => (was ? `${words(was[name])} before the changes` : otherwise);
  const tile = (name, value, small) =>
    h("div", { className: "card" }, h("dt", {}, name), h("dd", {}, value, h("small", {}, small)));
  const between = `between ${percent(now.low)} and ${percent(now.high)}, at 95 %`;
  const inside = taken === 1 ? "One test case is in the memory" : `${taken} test cases are in the memory`;
  const heads = ["confidence", "cases", "mean confidence", "accuracy"].map((name) => h("th", { scope: "col" }, name));
  replace(place,
    h("dl", { className: "tiles" },
      tile("Test cases", now.rows.toLocaleString("en"), `${now.right.toLocaleString("en")} correct`),
      tile("Accuracy", percent(now.accuracy), then("accuracy", percent, between)),
      tile("NLL", three(now.nll), then("nll", three, "mean −log p of the truth; lower is better")),
      tile("ECE", three(now.ece), then("ece", three, "mean gap of confidence and accuracy"))),
    h("div", { className: "two" },
      h("figure", { className: "card" }, diagram(now.bins, was ? was.bins : []),
        h("figcaption", { className: "quiet" }, "A dot is a bin of answers of similar confidence; ",
          "on the dashed line confidence equals accuracy. ", was && "Hollow: before the changes.")),
      h("div", { className: "card stack" },
        h("h2", {}, "Is it calibrated?"),
        h("p", { id: "calibration-words" }, `Over ${plural(now.rows, "test case")} it was `,
          `${percent(now.confidence)} confident on average, and right in ${percent(now.accuracy)}: `,
          calibrationText(now)),
        taken > 0 && h("p", { className: "comparison", id: "taken" }, `${inside}, and not scored.`),
        now.rows < 400 && quiet("With so few cases all these numbers are imprecise."),
        h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, now.bins.map((bin) => h("tr", {},
          h("td", {}, `${Math.round(100 * bin.low)} – ${Math.round(100 * bin.high)} %`), h("td", {}, bin.count),
          h("td", {}, percent(bin.confidence)), h("td", {}, percent(bin.accuracy)))))))));
}

function calibrationText({ confidence, accuracy, low, high }) {
  if (confidence >= low && confidence <= high) return "no significant difference.";
  return confidence > accuracy ? "it is overconfident." : "it is underconfident.";
}

function diagram(bins, was) {
  const left = 58, top = 12, side = 400, foot = 70, base = top + side + foot + 16;
  const x = (value) => left + side * value, y = (value) => top + side * (1 - value);
  const most = Math.max(...bins.map((bin) => bin.count));
  const text = (words, attributes) => svg("text", { "text-anchor": "middle", ...attributes }, words);
  const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1].flatMap((tick) => [
    svg("line", { class: "axis", x1: left, x2: left + side, y1: y(tick), y2: y(tick) }),
    text(`${Math.round(100 * tick)} %`, { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }),
    text(`${Math.round(100 * tick)} %`, { x: x(tick), y: base + 18 })]);
  const dots = bins.flatMap((bin) => {
    const high = (foot - 16) * (bin.count / most);
    const words = `${plural(bin.count, "case")} at ${percent(bin.confidence)}: right in ${percent(bin.accuracy)}`;
    const centre = { cx: x(bin.confidence), cy: y(bin.accuracy), r: 4 + 8 * Math.sqrt(bin.count / most) };
    return [
      svg("line", { class: "gap", x1: centre.cx, x2: centre.cx, y1: y(bin.confidence), y2: centre.cy }),
      svg("circle", { class: "dot", ...centre }, svg("title", {}, words)),
      svg("rect", { class: "count", x: x(bin.low) + 1, width: side * (bin.high - bin.low) - 2, y: base - high,
        height: high }, svg("title", {}, words)),
      text(String(bin.count), { x: x((bin.low + bin.high) / 2), y: base - high - 5 })];
  });
  const hollow = was.map((bin) => svg("circle", { class: "was", cx: x(bin.confidence), cy: y(bin.accuracy), r: 6 }));
  return svg("svg", { class: "chart", viewBox: `0 0 ${left + side + 22} ${base + 44}`, role: "img",
    "aria-label": "Reliability diagram: accuracy by confidence; the table has the numbers" },
    ...ticks, svg("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    text("confidence", { x: x(0.5), y: base + 38 }),
    text("accuracy", { transform: `translate(13 ${y(0.5)}) rotate(-90)` }), ...hollow, ...dots);
}

// Views

const VIEWS = { cases: () => drawCases(), calibration: drawCalibration, labels: drawLabels };

function view(name) {
  for (const id of ["ask", ...Object.keys(VIEWS)]) {
    $(id).hidden = id !== name;
    if (id === name) $(`to-${id}`).setAttribute("aria-current", "page");
    else $(`to-${id}`).removeAttribute("aria-current");
  }
}

async function route() {
  const name = location.hash.slice(1);
  if (name in VIEWS) {
    view(name);
    return VIEWS[name]();
  }
  const query = /^((case|memory)\/\d+|asked\/[\w-]+)$/.test(name) ? name : (current && current.query) || firstQuery();
  if (!current || current.query !== query) {
    before = counterfactual = null;
    shown = initialCount();
  }
  try {
    await show(query);
  } catch (error) {
    await recover(query).catch(() => {});
    throw error;
  } finally {
    view("ask");
  }
}

// The query does not exist (any more): back to the current one, or to the first.
async function recover(query) {
  const { state } = await api("/api/model");
  await checkModel(state);
  drawChanges();
  const back = current && current.query !== query ? current.query : firstQuery();
  history.replaceState(null, "", `#${back}`);
  if (back !== query) await show(back);
}

function addListeners() {
  document.addEventListener("keydown", reviewKey);
  window.addEventListener("hashchange", handler(async () => { await route(); window.scrollTo(0, 0); }));
  if (about.kind !== "images") return;
  const dragging = (on) => (event) => { event.preventDefault(); document.body.classList.toggle("dragging", on); };
  document.addEventListener("dragover", dragging(true));
  document.addEventListener("dragleave", dragging(false));
  document.addEventListener("drop", (event) => {
    dragging(false)(event);
    if (event.dataTransfer.files.length) sendPicture(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((entry) => entry.type.startsWith("image/"));
    if (file) sendPicture(file);
  });
}

reportErrors(async () => {
  about = await api("/api/model");
  document.title = `${about.name} · Attn-KNN`;
  $("name").textContent = about.name;
  $("version").textContent = `Attn-KNN ${about.version}`;
  $("other").open = window.innerWidth > 860;
  drawChanges();
  addListeners();
  await route();
});
