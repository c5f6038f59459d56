// The page over the server's JSON. Everything that comes from data is put in as text, never as HTML.
"use strict";

const $ = (id) => document.getElementById(id);
const HUES = ["#3b6fd4", "#e07b1f", "#2f9e5b", "#cf3f4f", "#8a5cc9", "#8a6246", "#d4569f", "#5f7a8c", "#a89a12",
  "#14a0b0"];
const MORE = 24, MOST = 64, FIELDS = 6, PAGE = 48;
let about = null;        // of the model
let told = null;         // the answer on the page
let before = null;       // the answer before the last change, and what was done
let turn = null;         // what would change the answer
let shown = 0;           // neighbours
let allColumns = false;
let hints = false;       // whether it is told what weights are
let picked = null;       // the label that a person chose for what is asked
let trail = [];          // names of the queries that led here
let asking = 0;          // answers that come late are dropped
const listing = { filter: "all", label: "", least: "0.8" };

// Elements

function h(tag, given, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) made.style.setProperty(name, value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

function svg(tag, given, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(given || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const put = (place, ...children) => place.replaceChildren(...children.flat().filter((child) => child));
const quiet = (...words) => h("p", { className: "quiet" }, ...words);

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

// Words and numbers

const many = (n, one, more) => `${n.toLocaleString("en")} ${n === 1 ? one : more || one + "s"}`;
const near = (value, digits = 3) => Number(value.toPrecision(digits)).toString().replace("-", "−");
const upper = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function percent(p) {
  if (p <= 0) return "0 %";
  if (p >= 1) return "100 %";
  if (p < 0.001) return "< 0.1 %";
  return p > 0.999 ? "> 99.9 %" : `${(100 * p).toFixed(1)} %`;
}

function sure(p) {
  if (p > 0.999) return "over 99.9 % sure";
  return p > 0.99 ? `${(100 * p).toFixed(1)} % sure` : `${Math.round(100 * p)} % sure`;
}

function hue(label) {
  const at = Math.max(about.classes.indexOf(label), 0);
  return at < HUES.length ? HUES[at] : `hsl(${(at * 137.5) % 360} 55% 52%)`;
}

const labelled = (label) => h("span", { className: "label", "--hue": hue(label) }, label);

const bar = (colour, part, ...more) =>
  h("span", { className: "bar", "--hue": colour, "--part": `${100 * part}%` }, h("i"), ...more);

function called(query) {
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

// Does what a button asks for; an error is told in a line.
async function attempt(work) {
  notice("");
  document.body.setAttribute("aria-busy", "true");
  try {
    return await work();
  } catch (error) {
    notice(upper(error.message));
  } finally {
    document.body.removeAttribute("aria-busy");
  }
}

const clicked = (work) => () => attempt(work);

// Asking

const firstQuery = () => (about.cases ? "case/0" : `memory/${about.state.first}`);
const fewest = () => (about.kind === "images" ? 10 : 9);  // whole rows of cards on a desk

async function show(query) {
  const number = ++asking;
  const added = before && before.row !== undefined ? `&row=${before.row}` : "";
  const found = await api(`/api/${query}?shown=${shown}${added}`);
  if (number === asking) await answered(found);
}

// Another model: its test cases, fields and colours are others, so nothing of this page stays.
function anew() {
  asking += 1;
  history.replaceState(null, "", location.pathname);
  location.reload();
  return new Promise(() => {});
}

async function heed(state) {
  if (state.model !== about.state.model) await anew();
  about.state = state;
}

async function send(sent, type) {
  const number = ++asking;
  shown = fewest();
  const found = await api(`/api/ask?shown=${shown}`, sent, type);
  if (number !== asking) return;
  before = turn = null;
  await answered(found);
  history.pushState(null, "", `#${found.query}`);
  view("ask");
}

async function answered(found) {
  await heed(found.state);
  told = found;
  if (trail.includes(found.query)) trail.length = trail.indexOf(found.query);
  trail = [...trail, found.query].slice(-12);
  $("to-ask").href = `#${found.query}`;
  drawChanges();
  draw();
}

// All of the view; what had the focus has it again.
function draw() {
  const focus = document.activeElement && document.activeElement.id;
  drawTrail();
  drawAnswer();
  drawForm();
  drawNeighbours();
  if (focus && $(focus)) $(focus).focus({ preventScroll: true });
}

const sendPicture = (file) => attempt(async () => {
  const most = about.limits.image_bytes / 1e6;
  const has = (file.size / 1e6).toFixed(1);
  if (file.size > 1e6 * most) throw new Error(`the file has ${has} MB; at most ${most} are taken`);
  await send(file, file.type.startsWith("image/") ? file.type : "image/unknown");
});

// After a change the same query is asked again, and both answers are shown.
async function changed(work, words) {
  const was = told;
  const done = await work();
  const gone = (done.ids || []).map((id) => `memory/${id}`);
  turn = null;
  await heed(done.state);
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

const add = (label) =>
  changed(() => api("/api/add", { query: told.query, label }), (done) => `Added as ${label}: row ${done.id}.`);

const forget = (ids) => changed(() => api("/api/forget", { ids }),
  () => (ids.length === 1 ? `Row ${ids[0]} forgotten.` : `${ids.length} rows forgotten.`));

async function reset() {
  if (!confirm("Go back to the model on disk? The changes that are not saved are lost.")) return;
  await api("/api/reset", {});
  await anew();
}

async function save() {
  if (!confirm("Write the changed model to its folder on disk?")) return;
  await api("/api/save", {});
  await anew();  // test cases that are in the memory now are test cases no more, and the others have other numbers
}

function drawChanges() {
  const { added, forgotten, memory } = about.state;
  const parts = [added && `${many(added, "row")} added`, forgotten && `${many(forgotten, "row")} forgotten`];
  $("changes").hidden = !(added || forgotten);
  put($("changes"),
    h("strong", {}, many(added + forgotten, "change"), ", not saved"),
    h("span", {}, parts.filter(Boolean).join(", "), about.can_save ? "." : "; kept only while this server runs."),
    about.can_save && h("button", { id: "save", onclick: clicked(save) }, "Save to disk"),
    about.can_reset && h("button", { id: "reset", onclick: clicked(reset) }, "Undo all"));
  const reads = {
    images: () => `pictures of ${about.shape[2]} × ${about.shape[1]} pixels`,
    table: () => `rows of ${many(about.columns.length, "column")}`,
    vectors: () => `vectors of ${many(about.dim, "number")}`,
  }[about.kind]();
  const classes = many(about.classes.length, "class", "classes");
  const words = [`${many(memory, "example")} in memory`, reads, classes];
  $("about").textContent = words.map((of) => of.replaceAll(" ", "\u00a0")).join(" · ");
}

// The answer

function drawTrail() {
  const steps = trail.slice(-5).map((name, i, all) => (i === all.length - 1
    ? h("strong", {}, called(name)) : [h("a", { href: `#${name}` }, called(name)), h("span", {}, "›")]));
  const [kind, which] = told.query.split("/");
  const step = (to, sign, words) => kind === "case" && to >= 0 && to < about.cases
    && h("a", { href: `#case/${to}`, className: "button", id: `go ${sign}`, title: words, "aria-label": words }, sign);
  put($("trail"),
    trail.length > 1 && h("a", { href: `#${trail.at(-2)}`, className: "button", id: "back" }, "‹ Back"),
    steps.flat(),
    step(Number(which) - 1, "←", "Previous test case"), step(Number(which) + 1, "→", "Next test case"));
}

function verdict() {
  const { label, query, answer } = told;
  if (label === null) return null;
  const right = label === answer.prediction;
  const words = query.startsWith("memory/")
    ? `It is in memory as ${label}, and left out for this answer. The others ${right ? "agree" : "disagree"}.`
    : `${right ? "Right" : "Wrong"}: its label is ${label}.`;
  return h("p", { className: right ? "good" : "bad", id: "verdict" }, words);
}

function setWords() {
  const { set } = told.answer, { added, forgotten } = about.state;
  const listed = set.slice(0, 12).join(", ") + (set.length > 12 ? `, and ${set.length - 12} more` : "");
  const words = set.length === about.classes.length ? "every class" : `{${listed}}`;
  const made = added || forgotten ? " (made before the changes)" : "";
  return [`90 % set: ${words}${made}`, " ",
    h("span", { className: "quiet" }, "Sets made so held the truth nine times in ten, on rows that were held out.")];
}

// Columns beside a vector, which are not read.
const drawBeside = (example) => h("dl", { className: "values scroll", id: "beside" },
  values(example).flatMap(({ name, text }) => [h("dt", { title: name }, name), h("dd", {}, text)]));

// A row that was just added may weigh next to nothing.
function drawAdded({ neighbours }) {
  if (!before || before.row === undefined) return null;
  const of = neighbours.find((one) => one.id === before.row);
  if (!of || of.weight >= 0.001) return null;
  const others = neighbours.filter((one) => one.id !== of.id && one.label !== of.label).length;
  return h("p", { className: "told", id: "added-weighs" }, `Row ${of.id} is in memory, and it weighs `,
    of.weight < 0.0001 ? "less than 0.01 %" : `${near(100 * of.weight, 1)} %`, 2 * others >= neighbours.length - 1 ? ": the rows around it carry other labels." : ".",
    " It is among the cards, where it can be forgotten.");
}

// Whether the last change alone lies between the answer before and this one.
const alone = () => before !== null && told.state.version === before.version + 1;

function drawBars(answer) {
  const compared = alone();
  const was = (label) => compared && before.answer.probabilities.find((of) => of.label === label).p;
  const row = (name, colour, p, ...mark) =>
    [name, bar(colour, p, ...mark), h("span", { className: "number" }, percent(p))];
  // Those that say nothing are told together, though not where there is but one.
  const spoken = answer.probabilities.filter((of, i) => i === 0 || of.p >= 0.001).slice(0, 6);
  const heads = spoken.length + 1 === answer.probabilities.length ? answer.probabilities.slice(0, 6) : spoken;
  const rest = answer.probabilities.slice(heads.length);
  return h("div", { className: "bars", id: "bars" },
    heads.flatMap(({ label, p }) => row(labelled(label), hue(label), p,
      compared && h("b", { "--was": `calc(${100 * was(label)}% - 1px)`, title: `before: ${percent(was(label))}` }))),
    rest.length ? row(h("span", { className: "quiet" }, many(rest.length, "other")), "var(--quiet)",
      rest.reduce((sum, of) => sum + of.p, 0)) : null);
}

function drawMoved(answer) {
  if (!before) return null;
  const was = before.answer;
  if (!alone()) {
    return h("p", { className: "moved", id: "moved" }, before.words,
      " The memory was changed by somebody else in between, so the answers before and after are not compared.");
  }
  const still = was.prediction === answer.prediction && Math.abs(was.confidence - answer.confidence) < 0.0005;
  const words = still ? "The answer stays as it was."
    : `The answer was ${was.prediction} (${percent(was.confidence)}) and is now ${answer.prediction} `
      + `(${percent(answer.confidence)}).`;
  return h("p", { className: "moved", id: "moved" }, before.words, " ", words);
}

function drawTurn() {
  if (!turn) return null;
  const n = turn.ids.length, of = told.answer.prediction, one = n === 1;
  const then = `${turn.prediction} (${percent(turn.confidence)})`;
  if (!turn.turned) {
    return h("p", { className: "told", id: "turn" }, n === 0 ? `Nothing here: no neighbour speaks for ${of}.`
      : `Not these alone: were the ${n} that weigh most for ${of} labelled ${turn.label}, it would still be ${then}.`);
  }
  const link = (id, i) => [i ? ", " : "", h("a", { href: `#memory/${id}` }, String(id))];
  const forgets = turn.how === "forget", rows = one ? ["row ", link(turn.ids[0], 0)[1]] : [`these ${n} rows`];
  const list = one ? [] : [": ", ...turn.ids.slice(0, 12).flatMap(link), n > 12 ? ` and ${n - 12} more` : ""];
  return h("div", { className: "told stack", id: "turn" },
    h("p", {}, forgets ? "Without " : "Were ", rows, forgets ? " " : ` labelled ${turn.label}, `, `it would be ${then}`,
      list, ". Where they are shown they are marked."),
    forgets && h("div", {}, h("button", { id: "forget-these", onclick: clicked(() => forget(turn.ids)) },
      one ? "Forget it" : `Forget these ${n}`)));
}

function drawAnswer() {
  const { answer, example, query, label } = told;
  const ours = query.startsWith("memory/");
  const choose = h("select", { id: "add-label", "aria-label": "Label",
    onchange: () => { picked = { query, label: choose.value }; } },
    about.classes.map((name) => h("option", { value: name }, name)));
  choose.value = picked && picked.query === query ? picked.label : label || answer.prediction;
  put($("answer"), h("div", { className: "stack" },
    h("div", { className: "asked" },
      example.picture && picture(example.picture, called(query)),
      h("div", { className: "stack" },
        h("p", { className: "says", id: "says" }, answer.prediction, h("small", {}, `, ${sure(answer.confidence)}`)),
        verdict(),
        answer.abstains && h("p", { className: "bad" }, `Below ${percent(about.abstain)} it would rather not say.`))),
    about.kind === "vectors" && example.columns && drawBeside(example),
    h("p", { id: "set", title: "Sets made so held the truth nine times in ten, on rows that were held out." },
      setWords()),
    drawMoved(answer),
    drawAdded(answer),
    drawBars(answer),
    h("div", { className: "row" },
      h("button", { id: "what-if", onclick: clicked(whatIf) }, "What would change this?"),
      ours && h("button", { id: "forget-this", onclick: clicked(() => forget([Number(query.slice(7))])) },
        "Forget this row")),
    drawTurn(),
    !ours && h("div", { className: "row" },
      h("label", { htmlFor: "add-label" }, "Add to memory as"), choose,
      h("button", { id: "add", onclick: clicked(() => add(choose.value)) }, "Add"))));
}

async function whatIf() {
  const { query } = told;
  $("what-if").disabled = true;
  try {
    const found = await api(`/api/change?query=${encodeURIComponent(query)}`);
    if (told.query === query) turn = found;
  } finally {
    draw();
    $("what-if").focus({ preventScroll: true });
  }
}

// Pictures, columns and vectors

function picture(address, words, given) {
  const small = Math.max(about.shape[1], about.shape[2]) < 100;
  return h("img", { src: address, alt: words, className: small ? "picture crisp" : "picture", ...given });
}

const fielded = () => about.kind === "table" || (about.kind === "vectors" && about.dim <= (about.named ? 64 : 12));

// Values of an example by name; `off` is where it stands in units of the column's spread.
function values(example) {
  if (example.columns) {
    const scales = new Map((about.columns || []).filter((of) => of.kind === "number").map((of) => [of.name, of.scale]));
    return Object.entries(example.columns).map(([name, value]) => {
      const off = scales.has(name) && value !== null ? Number(value) / scales.get(name) : null;
      return { name, value, text: value === null ? "–" : value, off };
    });
  }
  return dimensions(example);
}

function dimensions(example) {
  if (!example.vector || (about.dim > 64 && !about.named)) return [];  // many numbers without names say nothing
  const { values: numbers, off } = example.vector;
  return numbers.slice(0, off.length).map((value, i) => ({ name: about.names[i], value: String(value), text: near(value), off: off[i] }));
}

// Of a neighbour, those first that are furthest from the query's; the query's stand beside them.
function drawValues(example) {
  const beside = about.kind === "vectors" && example.columns;  // what stands beside a vector is only shown
  const asked = new Map(beside ? [] : values(told.example).map((of) => [of.name, of]));
  const all = values(example).map((of) => {
    const mine = asked.get(of.name);
    const differs = mine !== undefined && mine.value !== of.value;
    const by = differs && of.off !== null && mine.off !== null ? of.off - mine.off : null;
    return { ...of, mine, differs, by, far: by === null ? Number(differs) : Math.abs(by) };
  });
  if (!all.length) return null;
  const kept = allColumns ? all : [...all].sort((a, b) => b.far - a.far).slice(0, FIELDS);
  return h("dl", { className: "values" }, kept.flatMap(({ name, text, mine, differs, by, far }) => [
    h("dt", { title: name }, name),
    h("dd", { className: !differs ? "same" : far >= 0.5 ? "far" : "" },
      differs && h("small", {}, mine.text, by === null ? " → " : by > 0 ? " ▲ " : " ▼ "), text)]));
}

// A vector as bars, and the query's as ticks over them.
function strip(example, asked) {
  if (!example.vector) return null;
  const tall = (value) => 20 - 20 * Math.max(-1, Math.min(1, value / 3));
  const { off } = example.vector;
  const bars = off.map((value, i) => svg("rect", {
    class: "bar-of", x: i + 0.1, width: 0.8, y: Math.min(20, tall(value)), height: Math.abs(20 - tall(value)) + 0.3 }));
  const ticks = asked && asked.vector ? asked.vector.off.map((value, i) => svg("rect", {
    class: "tick", x: i, width: 1, y: tall(value) - 0.9, height: 1.8 })) : [];
  const box = { class: "strip", viewBox: `0 0 ${off.length} 40`, preserveAspectRatio: "none", "aria-hidden": "true" };
  return svg("svg", box, ...bars, ...ticks);
}

// Neighbours

function drawNeighbours() {
  const { answer: { neighbours, rest, null: held }, example } = told;
  const fields = values(example);
  const few = neighbours.length > shown;  // with a row that was added and is light
  const hold = `${many(rest.count, "lighter one")} hold${rest.count === 1 ? "s" : ""}`;
  const lighter = rest.count && `${hold} ${percent(rest.weight)} of the weight. `;
  const words = [
    lighter,
    held.weight > 0.0005 && `${percent(held.weight)} ${lighter ? "" : "of the weight "}comes from ${held.of}. `,
    fields.length && !(about.kind === "vectors" && example.columns) && "In small is what the query has; bold is far from it. ",
    example.vector && "Bars are standard deviations from the memory's mean, and ticks the query's.",
  ];
  put($("near-head"),
    h("h2", {}, rest.count ? `${few ? "" : "The "}${neighbours.length}${few ? "" : " heaviest"} of ${neighbours.length + rest.count} neighbours`
      : many(neighbours.length, "neighbour")),
    fields.length > FIELDS && h("label", { className: "row quiet" }, h("input", { type: "checkbox", id: "all-columns",
      checked: allColumns, onchange: (event) => { allColumns = event.target.checked; draw(); } }), "all columns"),
    quiet(...words.filter(Boolean)),
    h("details", { id: "weights", className: "quiet", open: hints,
      ontoggle: (event) => { hints = event.target.open; } }, h("summary", {}, "What is a weight?"),
      "How far a row decides. That depends on its distance, and on labels too: a row whose own neighbours carry other ",
      "labels counts for little, as it looks wrongly labelled. Class means may hold most of an answer."));
  const more = () => {
    shown = Math.min(MOST, shown + MORE);
    return show(told.query);
  };
  $("near").className = about.kind === "images" ? "near pictures" : "near";
  put($("near"), neighbours.map(drawNeighbour), rest.count && neighbours.length < MOST
    && h("div", { className: "more" }, h("button", { id: "more", onclick: clicked(more) }, "Show more")));
}

function drawNeighbour({ id, label, distance, weight, example }, _, all) {
  const agrees = label === told.answer.prediction;
  const marked = turn && turn.turned && turn.ids.includes(id);
  return h("article", { className: `card one ${agrees ? "" : "other"} ${marked ? "marked" : ""}`, "data-id": id },
    h("a", { href: `#memory/${id}`, id: `near-${id}`, title: `Ask for row ${id}` },
      example.picture && picture(example.picture, `Row ${id}`),
      h("span", { className: "top" }, labelled(label), !agrees && h("span", { className: "bad" }, "disagrees"),
        h("span", { className: "quiet", title: `distance ${distance}` }, `${near(distance, 2)} away`)),
      h("span", { className: "weight", title: "its share of the weight" },
        bar(hue(label), weight / (all[0].weight || 1)), h("span", { className: "number" }, percent(weight))),
      strip(example, told.example)),
    drawValues(example),
    h("div", { className: "foot quiet" }, h("span", {}, `row ${id}`),
      h("button", { className: "small", title: `Forget row ${id}`, "aria-label": `Forget row ${id}`,
        onclick: clicked(() => forget([id])) }, "forget")));
}

// What is asked: a picture, a row, or a vector

function drawForm() {
  const chance = about.cases && h("button", { type: "button", id: "chance",
    onclick: () => { location.hash = `#case/${Math.floor(Math.random() * about.cases)}`; } }, "A test case by chance");
  const what = about.kind === "table" ? "row" : "vector";
  $("other-title").textContent = about.kind === "images" ? "Ask for another picture" : `Change the ${what} and ask`;
  if (about.kind === "images") return put($("form"), pictureForm(chance));
  const fields = fielded() ? columnFields() : [];
  const line = h("textarea", { id: "line", spellcheck: false, "aria-label": "Numbers" });
  if (told.example.vector) line.value = told.example.vector.values.join(", ");
  const ask = fields.length ? askFields : () => askLine(line.value);
  const paste = fields.length ? h("details", {}, h("summary", { className: "quiet" }, "Paste a line of a CSV file"),
    h("div", { className: "stack" },
      h("textarea", { id: "paste", spellcheck: false, "aria-label": "A line of a CSV file",
        placeholder: "values in the order of the fields" }),
      h("div", {}, h("button", { id: "fill", onclick: clicked(fillFields) }, "Fill the fields")))) : null;
  return put($("form"), h("div", { className: "stack" },
    h("form", { className: "stack", onsubmit: (event) => { event.preventDefault(); attempt(ask); } },
      fields.length ? h("div", { className: "scroll" }, h("div", { className: "fields" }, fields))
        : [quiet(`${about.dim} numbers, apart by commas or spaces`), line],
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
      h("span", { className: "quiet" }, `It is seen at ${wide} × ${high}${channels === 1 ? ", in grey" : ""}. `,
        `Up to ${about.limits.image_bytes / 1e6} MB; pasting works too.`)),
    chance && h("div", { className: "row" }, chance));
}

function columnFields() {
  const columns = about.columns || about.names.map((name) => ({ name, kind: "number" }));
  const given = about.kind === "vectors" ? dimensions : values;
  const now = new Map(given(told.example).map((of) => [of.name, of.value]));
  return columns.map(({ name, kind, values: offered }, i) => h("label", { title: name }, h("span", {}, name),
    h("input", { name, id: `field-${i}`, value: now.get(name) ?? "", autocomplete: "off", placeholder: "missing",
      ...(kind === "number" ? { inputMode: "decimal" } : { list: `values-${i}` }) }),
    offered && h("datalist", { id: `values-${i}` }, offered.map((value) => h("option", { value })))));
}

const inputs = () => [...$("form").querySelectorAll(".fields input")];

const askFields = () => (about.kind === "vectors"
  ? send({ vector: inputs().map((of) => toNumber(of.value, of.name)) })
  : send({ row: Object.fromEntries(inputs().map((of) => [of.name, of.value])) }));

function toNumber(text, name) {
  const value = Number(text.trim().replace("−", "-"));
  if (text.trim() && Number.isFinite(value)) return value;
  throw new Error(`${name}: ${text.trim() ? `“${text.slice(0, 40)}” is no number` : "no value"}; give a number`);
}

function askLine(text) {
  const parts = text.trim().replace(/^\[|\]$/g, "").split(/[\s,;]+/).filter(Boolean);
  const given = many(parts.length, "number");
  if (parts.length !== about.dim) throw new Error(`${given}; this model was taught ${about.dim}`);
  return send({ vector: parts.map((part, i) => toNumber(part, `number ${i + 1}`)) });
}

// Cells of one line, with quotes as CSV has them.
const cells = (line) => [...line.matchAll(/(?:^|[,;\t])\s*(?:"((?:[^"]|"")*)"|([^,;\t]*))/g)]
  .map(([, quoted, plain]) => (quoted === undefined ? plain.trim() : quoted.replaceAll('""', '"')));

function fillFields() {
  const given = cells($("paste").value.trim().split("\n").at(-1)), fields = inputs();
  if (given.length !== fields.length) throw new Error(`${many(given.length, "value")} for ${fields.length} fields`);
  fields.forEach((input, i) => { input.value = given[i]; });
}

// Test cases

async function drawCases(start = 0) {
  const number = ++asking;
  const place = $("cases");
  if (!about.cases) return put(place, noCases("This model has no test cases"));
  const found = await api(`/api/cases?${new URLSearchParams({ ...listing, start, count: PAGE })}`);
  if (number !== asking) return;
  await heed(found.state);
  if (start === 0) {
    put(place, caseTools(), h("p", { id: "count", className: "quiet" }, countWords(found)),
      h("div", { className: about.kind === "images" ? "list pictures" : "list", id: "list" }),
      h("div", { className: "more", id: "cases-more" }));
  }
  $("list").append(...found.cases.map(drawCase));
  const next = start + found.cases.length;
  put($("cases-more"), next < found.total && h("button", { onclick: clicked(() => drawCases(next)) },
    `Show more: ${next} of ${found.total} are here`));
}

const noCases = (title) => h("div", { className: "card stack" }, h("h2", {}, title),
  h("p", {}, "Rows that were kept out of the memory, with their labels, show where a model is wrong, and whether its ",
    "probabilities are true. A classifier that was saved by itself has none; ",
    h("code", {}, "attnknn fit SOURCE -o MODEL --test 0.1"),
    " keeps a tenth of the rows out and stores them with the model."));

function countWords({ total, of, wrong }) {
  const { filter, label, least } = listing;
  const those = label ? ` labelled ${label}` : "";
  const all = `${many(of, "test case")}, ${wrong || "none"} of them wrong`;
  const found = `${total || "none"}${those}`;
  if (filter === "confident-wrong") return `${all}; ${found} ${100 * least} % sure or more, surest first.`;
  return `${all}${label ? `; ${found}` : ""}${filter === "unsure" ? "; least sure first" : ""}.`;
}

function caseTools() {
  const filters = { all: "All", wrong: "Wrong", "confident-wrong": "Confident and wrong", unsure: "Unsure" };
  const again = (name) => (event) => {
    const { id } = event.target;
    listing[name] = event.target.value;
    attempt(async () => { await drawCases(); if ($(id)) $(id).focus(); });
  };
  const select = (id, name, pairs) => h("select", { id, onchange: again(name) },
    pairs.map(([value, text]) => h("option", { value, selected: value === listing[name] }, text)));
  const radio = ([value, text]) => h("label", {}, h("input", { type: "radio", name: "filter", id: `only-${value}`,
    value, checked: listing.filter === value, onchange: again("filter") }), h("span", {}, text));
  const classes = about.classes.map((name) => [name, name]);
  return h("div", { className: "tools" },
    h("fieldset", { className: "choice", "aria-label": "Which test cases" }, Object.entries(filters).map(radio)),
    h("label", { className: "inline" }, "label", select("only", "label", [["", "any"], ...classes])),
    listing.filter === "confident-wrong" && h("label", { className: "inline" }, "confidence from",
      select("least", "least", [50, 70, 80, 90, 95, 99].map((of) => [String(of / 100), `${of} %`]))));
}

function drawCase({ case: which, label, prediction, confidence, right, example }) {
  const line = values(example).slice(0, 8).map(({ name, text }) => `${name} ${text}`).join(" · ");
  return h("a", { className: `card ${right ? "" : "wrong"}`, href: `#case/${which}`, "data-case": which },
    example.picture && picture(example.picture, "", { loading: "lazy" }),
    h("span", { className: "row" }, labelled(label),
      ...(right ? [] : [h("span", { className: "bad" }, "taken for"), labelled(prediction)])),
    h("span", { className: "quiet" }, `${about.kind === "images" ? "" : `case ${which} · `}${sure(confidence)}`),
    strip(example),
    line && h("span", { className: "quiet line" }, line));
}

// Calibration

async function drawCalibration() {
  const number = ++asking;
  const place = $("calibration");
  const { now, before: was, taken, state } = await api("/api/calibration");
  if (number !== asking) return;
  await heed(state);
  drawChanges();
  if (!now) return put(place, noCases("Whether its probabilities are true cannot be seen here"));
  const three = (value) => value.toFixed(3);
  const then = (name, words, otherwise) => (was ? `${words(was[name])} before the changes` : otherwise);
  const tile = (name, value, small) =>
    h("div", { className: "card" }, h("dt", {}, name), h("dd", {}, value, h("small", {}, small)));
  const between = `between ${percent(now.low)} and ${percent(now.high)}, at 95 %`;
  const inside = taken === 1 ? "One of these cases is in the memory now, and may answer itself"
    : `${taken} of these cases are in the memory now, and may answer themselves`;
  const heads = ["how sure", "cases", "on average", "right"].map((name) => h("th", { scope: "col" }, name));
  put(place,
    h("dl", { className: "tiles" },
      tile("Test cases", now.rows.toLocaleString("en"), `${now.right.toLocaleString("en")} answered rightly`),
      tile("Accuracy", percent(now.accuracy), then("accuracy", percent, between)),
      tile("NLL", three(now.nll), then("nll", three, "mean −log p of the truth; lower is better")),
      tile("ECE", three(now.ece), then("ece", three, "mean gap of confidence and accuracy"))),
    h("div", { className: "two" },
      h("figure", { className: "card" }, diagram(now.bins, was ? was.bins : []),
        h("figcaption", { className: "quiet" }, "A dot is a bin of answers that were about as sure; ",
          "on the dashed line they would be right as often as they say. ", was && "Hollow: before the changes.")),
      h("div", { className: "card stack" },
        h("h2", {}, "Can its confidence be believed?"),
        h("p", { id: "calibration-words" }, `Over ${many(now.rows, "test case")} it was `,
          `${percent(now.confidence)} sure on average, and right in ${percent(now.accuracy)}: ${gapWords(now)}`),
        taken > 0 && h("p", { className: "moved", id: "taken" }, `${inside}: the numbers may flatter.`),
        now.rows < 400 && quiet("With so few cases every number here is rough."),
        h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, now.bins.map((of) => h("tr", {},
          h("td", {}, `${Math.round(100 * of.low)} – ${Math.round(100 * of.high)} %`), h("td", {}, of.count),
          h("td", {}, percent(of.confidence)), h("td", {}, percent(of.accuracy)))))))));
}

function gapWords({ confidence, accuracy, low, high }) {
  if (confidence >= low && confidence <= high) return "no difference that so many cases could show.";
  return confidence > accuracy ? "it is too sure of itself." : "it is more often right than it says.";
}

function diagram(bins, was) {
  const left = 58, top = 12, side = 400, foot = 70, base = top + side + foot + 16;
  const x = (value) => left + side * value, y = (value) => top + side * (1 - value);
  const most = Math.max(...bins.map((of) => of.count));
  const text = (words, given) => svg("text", { "text-anchor": "middle", ...given }, words);
  const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1].flatMap((tick) => [
    svg("line", { class: "axis", x1: left, x2: left + side, y1: y(tick), y2: y(tick) }),
    text(`${Math.round(100 * tick)} %`, { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }),
    text(`${Math.round(100 * tick)} %`, { x: x(tick), y: base + 18 })]);
  const dots = bins.flatMap((of) => {
    const high = (foot - 16) * (of.count / most);
    const words = `${many(of.count, "case")} at ${percent(of.confidence)}: right in ${percent(of.accuracy)}`;
    const at = { cx: x(of.confidence), cy: y(of.accuracy), r: 4 + 8 * Math.sqrt(of.count / most) };
    return [
      svg("line", { class: "gap", x1: at.cx, x2: at.cx, y1: y(of.confidence), y2: at.cy }),
      svg("circle", { class: "dot", ...at }, svg("title", {}, words)),
      svg("rect", { class: "count", x: x(of.low) + 1, width: side * (of.high - of.low) - 2, y: base - high,
        height: high }, svg("title", {}, words)),
      text(String(of.count), { x: x((of.low + of.high) / 2), y: base - high - 5 })];
  });
  const hollow = was.map((of) => svg("circle", { class: "was", cx: x(of.confidence), cy: y(of.accuracy), r: 6 }));
  return svg("svg", { class: "chart", viewBox: `0 0 ${left + side + 22} ${base + 44}`, role: "img",
    "aria-label": "Reliability diagram: how often answers are right, by how sure they are; the table has the numbers" },
    ...ticks, svg("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    text("how sure it was", { x: x(0.5), y: base + 38 }),
    text("how often it was right", { transform: `translate(13 ${y(0.5)}) rotate(-90)` }), ...hollow, ...dots);
}

// Where we are

function view(name) {
  for (const of of ["ask", "cases", "calibration"]) {
    $(of).hidden = of !== name;
    if (of === name) $(`to-${of}`).setAttribute("aria-current", "page");
    else $(`to-${of}`).removeAttribute("aria-current");
  }
}

async function route() {
  const name = location.hash.slice(1);
  if (name === "cases" || name === "calibration") {
    view(name);
    return name === "cases" ? drawCases() : drawCalibration();
  }
  const query = /^((case|memory)\/\d+|asked\/[\w-]+)$/.test(name) ? name : (told && told.query) || firstQuery();
  if (!told || told.query !== query) {
    before = turn = null;
    shown = fewest();
  }
  try {
    await show(query);
  } catch (error) {
    await stay(query).catch(() => {});
    throw error;
  } finally {
    view("ask");
  }
}

// What was asked is not there (any more): back to what is shown, as it is now, or to the first.
async function stay(query) {
  const { state } = await api("/api/model");
  await heed(state);
  drawChanges();
  const back = told && told.query !== query ? told.query : firstQuery();
  history.replaceState(null, "", `#${back}`);
  if (back !== query) await show(back);
}

function listen() {
  window.addEventListener("hashchange", clicked(async () => { await route(); window.scrollTo(0, 0); }));
  if (about.kind !== "images") return;
  const dragging = (on) => (event) => { event.preventDefault(); document.body.classList.toggle("dragging", on); };
  document.addEventListener("dragover", dragging(true));
  document.addEventListener("dragleave", dragging(false));
  document.addEventListener("drop", (event) => {
    dragging(false)(event);
    if (event.dataTransfer.files.length) sendPicture(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((of) => of.type.startsWith("image/"));
    if (file) sendPicture(file);
  });
}

attempt(async () => {
  about = await api("/api/model");
  document.title = `${about.name} · Attn-KNN`;
  $("name").textContent = about.name;
  $("version").textContent = `Attn-KNN ${about.version}`;
  $("other").open = window.innerWidth > 860;
  drawChanges();
  listen();
  await route();
});
