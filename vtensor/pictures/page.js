// The tools of a page: fold, select, search. A link may preselect: #node=NAME, #q=TEXT and #depth=N,
// joined with "&".
"use strict";

const MANY = 150; // a page with more boxes opens folded
const COMFORTABLE = 40; // the number of boxes that folding aims at

const folded = new Set(); // scopes, in all pictures alike
let selected = null; // key of a box
const byId = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const views = [...document.querySelectorAll("figure svg")].map(
  (svg, index) => new View(svg, data.views[index], {
    box: (view, i) => select(view.boxes[i].key, false),
    arrow: showArrow,
    scope: showScope,
    open: (_, scope) => fold(scope, false),
  }));
const allBoxes = views.flatMap((view) => view.boxes);

// ---- folding

function arrangeAll() {
  for (const view of views) view.draw(folded);
  search();
  if (selected) select(selected, false);
}

function fold(scope, closed) {
  if (closed) folded.add(scope);
  else folded.delete(scope);
  arrangeAll();
  for (const view of views) {
    const inside = view.boxes.findIndex((box) => scopesOf(box).includes(scope));
    if (inside >= 0) view.center(inside);
  }
}

function foldAt(depth) {
  folded.clear();
  for (const box of allBoxes) {
    const scope = scopesOf(box)[depth - 1];
    if (scope) folded.add(scope);
  }
  arrangeAll();
  for (const view of views) view.fit(false);
}

// The number of boxes in the largest picture when scopes are folded at a depth; 0 folds nothing.
function countAt(depth) {
  return Math.max(...views.map(({ boxes }) =>
    new Set(boxes.map((box) => (depth && scopesOf(box)[depth - 1]) || box.key)).size));
}

function chooseDepth() {
  const deepest = Math.max(0, ...allBoxes.map((box) => scopesOf(box).length));
  const depths = [...Array(deepest + 1).keys()];
  byId("depth").append(...depths.map((depth) => element("option", { value: depth },
    depth ? `scope ${depth}: ${countAt(depth)} boxes` : `nothing: ${countAt(0)} boxes`)));
  const distance = (depth) => Math.abs(Math.log(countAt(depth) / COMFORTABLE));
  return countAt(0) <= MANY ? 0 : depths.reduce((a, b) => (distance(b) < distance(a) ? b : a));
}

// ---- selection and details

function mark(view, elements) {
  selected = null;
  for (const one of view.svg.querySelectorAll(".selected")) one.classList.remove("selected");
  for (const one of elements) one.classList.add("selected");
}

// Select a box in every picture that has it. On request, scroll to it, or to the maker of its value
// if the picture does not have it.
function select(key, centered = true) {
  const box = allBoxes.findLast((one) => one.key === key);
  for (const view of views) {
    const index = view.boxes.findIndex((one) => one.key === key);
    const instead = view.arrows.find(({ value }) => value === box.details.value)?.source ?? -1;
    const near = index < 0 ? instead : index;
    const touching = view.arrowElements.filter((_, i) =>
      [view.arrows[i].source, view.arrows[i].target].includes(index));
    mark(view, index < 0 ? [] : [view.shown(index), ...touching]);
    if (centered && near >= 0) view.center(near);
  }
  selected = key;
  byId("details").replaceChildren(...details(box));
}

function reveal(key) {
  for (const box of allBoxes.filter((one) => one.key === key))
    for (const scope of scopesOf(box)) folded.delete(scope);
  arrangeAll();
  select(key);
}

function details(box) {
  const { operands = [], declined = [], kernels = [], sizes } = box.details;
  const scopes = scopesOf(box).map((scope) =>
    element("button", { onclick: () => fold(scope, true) }, `fold ${scope}`));
  const rows = [["name", box.name], ["library", box.library], ["form", box.form],
    ["kernel", kernels.join(" + ")]];
  if (sizes) rows.push(["value", box.details.value], ["sizes", sizesText(box.details)]);
  return [
    element("h2", {}, box.kind === "transform" ? `Transform ${box.title}` : box.title),
    element("p", { className: box.kind === "transform" ? "reason" : "" }, box.hint),
    table(rows.filter(([, text]) => text)),
    table(operands.map((one) => [one.role, operandText(one)])),
    table(declined.map((one) => [`${one.library} declined`, one.reason])),
    ...scopes,
  ];
}

function operandText({ value, layout, asked, at, bytes, constant, ...tensor }) {
  const lines = [`${value}${constant ? " (constant)" : ""}`, sizesText(tensor),
    `${layout}, ${bytes.toLocaleString("en")} bytes`, `asked for ${asked.join(", ")} at ${at}`];
  return element("div", {}, ...lines.map((line) => element("div", {}, line)));
}

const sizesText = ({ dtype, sizes }) =>
  [dtype, ...Object.entries(sizes).map(([dim, size]) => `${dim}=${size}`)].join(" ");

function table(rows) {
  return element("table", {}, ...rows.map(([head, text]) =>
    element("tr", {}, element("th", {}, head), element("td", {}, text))));
}

function showArrow(view, index) {
  mark(view, [view.arrowElements[index]]);
  const { hint, source, target } = view.arrows[index];
  const ends = [source, target].map((i) => boxButton(view.boxes[i]));
  byId("details").replaceChildren(element("h2", {}, "Value"), element("p", {}, hint), ...ends);
}

function showScope(view, scope) {
  mark(view, [view.scopes.get(scope)]);
  const inside = view.boxes.filter((box) => foldOf(box, folded) === scope);
  byId("details").replaceChildren(element("h2", {}, scope),
    element("button", { onclick: () => fold(scope, false) }, "open"), ...inside.map(boxButton));
}

function boxButton(box) {
  return element("button", { onclick: () => reveal(box.key) }, `${box.title} ${box.name}`);
}

// ---- search

let hits = []; // keys of the boxes found, in order
let hit = -1;

function search() {
  const wanted = byId("search").value.trim().toLowerCase();
  hits = [...new Set(views.flatMap((view) => find(view, wanted)))];
  hit = -1;
  byId("found").value = wanted ? `${hits.length} found` : "";
}

function find(view, wanted) {
  const layouts = view.boxes.map(() => "");
  for (const { source, target, layout, value } of view.arrows)
    for (const end of [source, target]) layouts[end] += ` ${layout} ${value}`;
  const found = [...view.boxes.keys()].filter((i) => {
    const { kind, name, title, library, form } = view.boxes[i];
    const text = `${kind} ${name} ${title} ${library} ${form} ${layouts[i]}`.toLowerCase();
    return wanted && text.includes(wanted);
  });
  view.svg.classList.toggle("searching", wanted !== "");
  for (const one of view.svg.querySelectorAll(".hit")) one.classList.remove("hit");
  for (const i of found) view.shown(i).classList.add("hit");
  return found.map((i) => view.boxes[i].key);
}

// ---- tools and start

byId("tools").onsubmit = (event) => {
  event.preventDefault();
  if (!hits.length) return;
  const next = (hit + 1) % hits.length;
  reveal(hits[next]);
  hit = next;
};
byId("search").oninput = search;
byId("depth").onchange = () => foldAt(Number(byId("depth").value));
byId("smaller").onclick = () => views.forEach((view) => view.zoom(1 / 1.3));
byId("larger").onclick = () => views.forEach((view) => view.zoom(1.3));
byId("whole").onclick = () => views.forEach((view) => view.fit(true));
byId("width").onclick = () => views.forEach((view) => view.fit(false));
addEventListener("resize", () => views.forEach((view) => view.look()));
addEventListener("hashchange", start);

const initialDepth = chooseDepth();

function start() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  byId("depth").value = wanted.get("depth") ?? initialDepth;
  byId("search").value = wanted.get("q") ?? "";
  foldAt(Number(byId("depth").value));
  const node = allBoxes.find(({ name }) => name === wanted.get("node"));
  if (node) reveal(node.key);
}

start();
