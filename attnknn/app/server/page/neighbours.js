// The neighbours of a query as cards: pictures, columns and vectors.
"use strict";

function picture(address, words, props) {
  const small = about.kind === "images" && Math.max(about.shape[1], about.shape[2]) < 100;
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

// The values of a neighbour beside the query's, those that differ most.
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
  const most = [...all].sort((a, b) => b.distance - a.distance).slice(0, fields());
  const kept = allColumns ? all : all.filter((entry) => most.includes(entry));
  if (!queryFields.size) {
    return h("dl", { className: "values" }, kept.flatMap(({ name, text }) => [h("dt", {}, name), h("dd", { title: text }, shorten(text))]));
  }
  const arrow = (difference) => (difference === null || difference === 0 ? "" : difference > 0 ? "▲ " : "▼ ");
  const heads = ["", "query", "neighbour"].map((name) => h("th", { scope: "col" }, name));
  return h("table", { className: "comparing" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, kept.map(
    ({ name, text, queryField, differs, difference, distance }) => h("tr", {},
      h("th", { scope: "row" }, name), h("td", {}, queryField ? queryField.text : "–"),
      h("td", { className: !differs ? "same" : distance >= 0.5 ? "far" : "" }, arrow(difference), text)))));
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

// Cards

function drawNeighbours() {
  const { answer: { neighbours, rest }, example } = current;
  const comparing = values(example).length && !(about.kind === "vectors" && example.columns);
  const few = neighbours.length > shown;  // with an added row of small weight
  const words = [
    rest.count && `${rest.count === 1 ? "The other one has" : `The other ${rest.count} have`} ${percent(rest.weight)} of the weight. `,
    comparing && "Bold values differ from the query's by half a standard deviation or more. ",
    example.vector && "Bars are the vector, in standard deviations from the memory's mean; ticks are the query's.",
  ];
  replace($("neighbours-head"),
    h("h2", {}, rest.count ? `${few ? "" : "The "}${neighbours.length}${few ? "" : " heaviest"} of `
      + `${neighbours.length + rest.count} neighbours` : plural(neighbours.length, "neighbour")),
    values(example).length > fields() && h("label", { className: "row quiet" }, h("input", { type: "checkbox",
      id: "all-columns", checked: allColumns,
      onchange: (event) => { allColumns = event.target.checked; draw(); } }), "all columns"),
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
  replace($("null-scores"), drawNull());
  replace($("neighbours"), neighbours.map(drawNeighbour));
  replace($("more-neighbours"), rest.count && neighbours.length < MOST
    && h("button", { id: "more", onclick: handler(more) }, "Show more"));
}

const NULL_SCORES = {
  "class means": "No row: how near the query is to the mean of each class.",
  "class shares": "No row: how frequent each class is in the memory.",
  "linear classifier": "No row: what a logistic regression on the memory says.",
};

// The largest weight of the cards, whose bar is full.
const heaviest = () => Math.max(...current.answer.neighbours.map((one) => one.weight), current.answer.null.weight) || 1;

// What scores classes beside the rows.
function drawNull() {
  const { prediction, null: { of, weight, share, classes } } = current.answer;
  if (share <= 0.0005) return null;
  return h("div", { className: "card", id: "null" },
    h("div", { className: "stack" }, h("strong", {}, capitalise(of)), quiet(NULL_SCORES[of]),
      h("span", { className: "weight", title: "its share of the votes for all classes" },
        bar("var(--quiet)", weight / heaviest()), h("span", { className: "number" }, percent(weight))),
      quiet(`${percent(share)} of the votes for ${prediction}`)),
    h("div", { className: "bars" }, classes.filter((one) => one.weight >= 0.0005).flatMap((one) => [labelled(one.label),
      bar(colour(one.label), one.weight / weight), h("span", { className: "number" }, percent(one.weight / weight))])));
}

function drawNeighbour({ id, label, distance, weight, example }) {
  const agrees = label === current.answer.prediction;
  const marked = counterfactual && counterfactual.turned && counterfactual.ids.includes(id);
  const n = marked && counterfactual.ids.length;
  return h("article", { className: `card one ${agrees ? "" : "other"} ${marked ? "marked" : ""}`, "data-id": id },
    marked && h("span", { className: "mark" }, n > 1 ? `changes it with ${n - 1} more` : "changes it"),
    h("a", { href: `#memory/${id}`, id: `neighbour-${id}`, title: `Ask for row ${id}` },
      example.picture && picture(example.picture, `Row ${id}`),
      labelled(label),
      h("span", { className: "top" },
        h("span", { className: "quiet", title: `distance ${distance}` }, `distance ${formatNumber(distance, 2)}`),
        !agrees && h("span", { className: "bad" }, "disagrees")),
      h("span", { className: "weight", title: "its share of the votes" },
        bar(colour(label), weight / heaviest()), h("span", { className: "number" }, percent(weight)))),
    drawValues(example),
    strip(example, current.example),
    h("div", { className: "foot quiet" }, h("span", {}, `row ${id}`),
      h("button", { className: "small", title: `Forget row ${id}`, "aria-label": `Forget row ${id}`,
        onclick: handler(() => forget([id])) }, "forget")));
}
