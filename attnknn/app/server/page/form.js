// The form: a picture, a row or a vector.
"use strict";

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
