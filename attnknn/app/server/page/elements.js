// Elements, texts and numbers. Data is inserted as text, never as HTML.
"use strict";

const $ = (id) => document.getElementById(id);
// Of classes: neither green nor red, which mean right and wrong. Beyond ten, from the hues between and beside these.
const COLOURS = ["#3b6fd4", "#e08a1f", "#8a5cc9", "#14a0b0", "#8a6246", "#d4569f", "#5f7a8c", "#b8a012", "#79aef2",
  "#b48be0"];

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
const shorten = (text) => (text.length > 36 ? `${text.slice(0, 12)}…${text.slice(-22)}` : text);
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

function colour(label) {
  const index = Math.max(about.classes.indexOf(label), 0);
  const turn = (index * 74.2) % 195;  // over the hues 25–65 and 175–330
  return COLOURS[index] || `hsl(${turn < 40 ? 25 + turn : 135 + turn} ${[75, 45, 30][index % 3]}% ${[38, 52, 66][(index >> 1) % 3]}%)`;
}

const labelled = (label) => h("span", { className: "label", "--hue": colour(label) }, label);

const bar = (hue, part, ...more) =>
  h("span", { className: "bar", "--hue": hue, "--part": `${100 * part}%` }, h("i"), ...more);

function queryTitle(query) {
  const [kind, which] = query.split("/");
  if (kind === "case") return `Test case ${which}`;
  if (kind === "memory") return `Row ${which}`;
  return { images: "Your picture", table: "Your row", vectors: "Your vector" }[about.kind];
}
