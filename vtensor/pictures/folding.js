// The places of boxes and arrows when scopes are folded. Python has placed every box (layered.py);
// the items that folding leaves get new rows, and keep their order from left to right.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const { boxSpace, bendSpace, longest } = data.size;
const SWEEPS = 40; // over the items that folding has moved

const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
const median = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];

// "a/b/c": "a", "a/b", "a/b/c"
function scopesOf(box) {
  const parts = box.scope ? box.scope.split("/") : [];
  return parts.map((_, last) => parts.slice(0, last + 1).join("/"));
}

// The outermost folded scope around a box, or undefined.
const foldOf = (box, folded) => scopesOf(box).find((scope) => folded.has(scope));

// Items, by what they represent: a box's index, or a folded scope with the boxes inside it; and
// links between items, each with the points that it passes.
function place({ boxes, arrows }, folded) {
  const homes = boxes.map((box, index) => foldOf(box, folded) ?? index);
  const members = Map.groupBy(boxes.keys(), (index) => homes[index]);
  const things = new Map([...members].map(([home, inside]) => [home, {
    home, inside, width: boxSpace,
    x: median(inside.map((index) => boxes[index].x)),
    height: median(inside.map((index) => boxes[index].row)) }]));
  const links = joined(arrows, homes, things);
  rank([...things.values()], links);
  const rows = Map.groupBy(things.values(), ({ row }) => row);
  bend(arrows, links, rows);
  for (const items of rows.values()) spread(items);
  const ordered = [...rows.keys()].sort((a, b) => a - b).map((row) => rows.get(row));
  if (folded.size) relax(links, ordered);
  return { things, links };
}

// One link for all arrows from one item to another in one layout.
function joined(arrows, homes, things) {
  const links = new Map();
  arrows.forEach(({ source, target, value, layout }, index) => {
    const [from, to] = [homes[source], homes[target]];
    const key = JSON.stringify([from, to, typeof from === "number" ? value : layout]);
    if (from !== to && !links.has(key))
      links.set(key, { index, from: things.get(from), to: things.get(to) });
  });
  return [...links.values()];
}

// Add bends to the rows that links pass; the users of a value share its bends.
function bend(arrows, links, rows) {
  const shared = new Map();
  for (const link of links) {
    const { from, to } = link;
    const { bends, value } = arrows[link.index];
    const xs = [from.x, ...bends, to.x];
    link.points = [from];
    const last = to.row - from.row > longest ? from.row : to.row;
    for (let row = from.row + 1; row < last; row++) {
      const key = JSON.stringify([from.home, value, row]);
      if (!shared.has(key)) {
        const x = between(xs, (row - from.row) / (to.row - from.row));
        shared.set(key, { row, x, width: bendSpace });
        if (!rows.has(row)) rows.set(row, []);
        rows.get(row).push(shared.get(key));
      }
      link.points.push(shared.get(key));
    }
    link.points.push(to);
  }
}

// The point at a fraction of a way through abscissae at equal distances.
function between(xs, fraction) {
  const at = fraction * (xs.length - 1);
  const left = Math.min(Math.floor(at), xs.length - 2);
  return xs[left] + (at - left) * (xs[left + 1] - xs[left]);
}

// The longest path from above; of a cycle, which folding can make, the uppermost item goes first.
function rank(things, links) {
  const waiting = new Map(things.map((thing) => [thing, 0]));
  for (const { to } of links) waiting.set(to, waiting.get(to) + 1);
  for (const thing of things) thing.row = 0;
  const outgoing = Map.groupBy(links, ({ from }) => from);
  const ready = things.filter((thing) => !waiting.get(thing));
  while (waiting.size) {
    const next = ready.pop() ??
      [...waiting.keys()].reduce((best, one) => (one.height < best.height ? one : best));
    if (!waiting.delete(next)) continue;
    for (const { to } of outgoing.get(next) ?? []) {
      if (!waiting.has(to)) continue;
      to.row = Math.max(to.row, next.row + 1);
      waiting.set(to, waiting.get(to) - 1);
      if (!waiting.get(to)) ready.push(to);
    }
  }
  const entered = new Set(links.map(({ to }) => to));
  for (const thing of things.filter((one) => !entered.has(one) && outgoing.has(one)))
    thing.row = Math.min(...outgoing.get(thing).map(({ to }) => to.row)) - 1;
}

// Move the items of a row to the nearest places, by least squares, at which they do not overlap:
// blocks of items that touch move together.
function spread(items) {
  items.sort((a, b) => a.x - b.x);
  const blocks = [];
  let offset = 0;
  items.forEach((item, index) => {
    if (index) offset += (items[index - 1].width + item.width) / 2;
    item.offset = offset;
    let block = { sum: item.x - offset, count: 1, items: [item] };
    while (blocks.length && blocks.at(-1).sum / blocks.at(-1).count >= block.sum / block.count) {
      const before = blocks.pop();
      block = { sum: before.sum + block.sum, count: before.count + block.count,
        items: before.items.concat(block.items) };
    }
    blocks.push(block);
  });
  for (const { sum, count, items: together } of blocks)
    for (const item of together) item.x = sum / count + item.offset;
}

// Use the room that folding leaves: move items to the mean of their neighbours, row by row.
function relax(links, rows) {
  const near = new Map(rows.flat().map((item) => [item, new Set()]));
  for (const { points } of links)
    points.slice(1).forEach((below, index) => {
      near.get(below).add(points[index]);
      near.get(points[index]).add(below);
    });
  for (let sweep = 0; sweep < SWEEPS; sweep++)
    for (const row of sweep % 2 ? rows.toReversed() : rows) {
      for (const item of row)
        if (near.get(item).size) item.x = mean([...near.get(item)].map(({ x }) => x));
      spread(row);
    }
}
