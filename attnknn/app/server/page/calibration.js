// Calibration.
"use strict";

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
