// State, requests and views of the page. The scripts before this one draw its parts.
"use strict";

const MORE = 24, MOST = 64, PAGE = 48;
const fields = () => (window.innerWidth < 860 ? 4 : 6);  // columns of a card, of those that differ most
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

// Views

// The buttons that keys press in a view.
const KEYS = {
  ask: { ArrowLeft: "previous-case", ArrowRight: "next-case", w: "what-if" },
  labels: { k: "decide-keep", r: "decide-relabel", f: "decide-forget", u: "undo", ArrowLeft: "previous-issue",
    ArrowRight: "next-issue" },
};

function pressKey(event) {
  // Keys pressed before the next row is shown are dropped, so that no unseen row is decided.
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const shownView = Object.keys(KEYS).find((name) => !$(name).hidden);
  const id = shownView && KEYS[shownView][event.key];
  if (id && $(id) && !document.body.hasAttribute("aria-busy")) $(id).click();
}

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
  document.addEventListener("keydown", pressKey);
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
