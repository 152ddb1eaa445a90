// A picture on the page: moves and hides the boxes and arrows that Python drew, and adds folded
// scopes; the view box is the zoom.
"use strict";

const { width: WIDTH, height: HEIGHT, pitch: PITCH, margin: MARGIN } = data.size;
const LARGEST = 1.25; // the largest scale of a picture at first

function drawn(tag, attributes, text = "") {
  const made = document.createElementNS(document.querySelector("svg").namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

function path(points) {
  let text = `M${points[0].x} ${points[0].row * PITCH + HEIGHT}`;
  points.slice(1).forEach((below, index) => {
    const { x, row } = points[index];
    const [top, foot] = [row * PITCH + HEIGHT, below.row * PITCH];
    const middle = (top + foot) / 2;
    text += `L${x} ${top}C${x} ${middle} ${below.x} ${middle} ${below.x} ${foot}`;
  });
  return `${text}m-4 -6l4 6l4 -6`;
}

class View {
  // "on" has the functions box, arrow, scope, open: called with the view and an index or a scope.
  constructor(svg, scene, on) {
    Object.assign(this, scene, { svg, on, scopes: new Map(), scale: 1, left: 0, top: 0 });
    this.boxElements = [...svg.querySelectorAll(".box")];
    this.arrowElements = [...svg.querySelectorAll(".arrow")];
    this.boxElements.forEach((one, i) => (one.onclick = () => on.box(this, i)));
    this.arrowElements.forEach((one, i) => (one.onclick = () => on.arrow(this, i)));
    svg.onwheel = (event) => this.wheel(event);
    svg.onpointerdown = (event) => this.drag(event);
  }

  // Draw with these scopes folded.
  draw(folded) {
    const { things, links } = place(this, folded);
    Object.assign(this, { things, folded });
    for (const one of [...this.boxElements, ...this.arrowElements]) one.setAttribute("hidden", "");
    for (const one of this.scopes.values()) one.remove();
    this.scopes.clear();
    for (const { home, inside, x, row } of things.values()) {
      const shown = typeof home === "number" ? this.boxElements[home] : this.scopeBox(home, inside);
      shown.removeAttribute("hidden");
      shown.setAttribute("transform", `translate(${x - WIDTH / 2} ${row * PITCH})`);
    }
    for (const { index, points } of links) {
      this.arrowElements[index].removeAttribute("hidden");
      this.arrowElements[index].setAttribute("d", path(points));
    }
  }

  scopeBox(scope, inside) {
    const group = drawn("g", { class: "box scope" });
    const outline = { width: WIDTH, height: HEIGHT, rx: 3, class: "outline" };
    group.append(drawn("title", {}, scope),
      drawn("rect", { ...outline, x: 4, y: 4, fill: "white" }),
      drawn("rect", { ...outline, fill: "white" }));
    let x = 1;
    for (const [library, tint] of Object.entries(data.libraries)) {
      const share = inside.filter((i) => this.boxes[i].library === library).length / inside.length;
      const size = { width: share * (WIDTH - 2), height: HEIGHT - 2 };
      group.append(drawn("rect", { x, y: 1, ...size, fill: tint }));
      x += size.width;
    }
    const name = scope.length > 22 ? `…${scope.slice(-21)}` : scope;
    group.append(drawn("text", { class: "name", x: 8, y: 15 }, name),
      drawn("text", { class: "note", x: 8, y: 29 }, `${inside.length} nodes`));
    const count = inside.filter((i) => this.boxes[i].kind === "transform").length;
    if (count)
      group.append(drawn("text", { class: "note transforms", x: WIDTH - 8, y: 29 },
        `⬣ ${count} Transform${count > 1 ? "s" : ""}`));
    group.onclick = () => this.on.scope(this, scope);
    group.ondblclick = () => this.on.open(this, scope);
    this.svg.append(group);
    this.scopes.set(scope, group);
    return group;
  }

  // The element that represents a box: its own, or its folded scope's.
  shown(index) {
    return this.scopes.get(foldOf(this.boxes[index], this.folded)) ?? this.boxElements[index];
  }

  look() {
    const { clientWidth: wide, clientHeight: tall } = this.svg;
    this.svg.setAttribute("viewBox",
      `${this.left} ${this.top} ${wide / this.scale} ${tall / this.scale}`);
  }

  zoom(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    this.left += (x / this.scale) * (1 - 1 / factor);
    this.top += (y / this.scale) * (1 - 1 / factor);
    this.scale *= factor;
    this.look();
  }

  fit(whole) {
    const things = [...this.things.values()];
    const left = Math.min(...things.map(({ x }) => x)) - WIDTH / 2 - MARGIN;
    const right = Math.max(...things.map(({ x }) => x)) + WIDTH / 2 + MARGIN;
    const tall = (Math.max(...things.map(({ row }) => row)) + 1) * PITCH + 2 * MARGIN;
    this.scale = Math.min(LARGEST, this.svg.clientWidth / (right - left),
      whole ? this.svg.clientHeight / tall : Infinity);
    this.left = (left + right - this.svg.clientWidth / this.scale) / 2;
    this.top = -MARGIN;
    this.look();
  }

  center(index) {
    const { x, row } = this.things.get(foldOf(this.boxes[index], this.folded) ?? index);
    this.scale = Math.max(this.scale, 0.8);
    this.left = x - this.svg.clientWidth / this.scale / 2;
    this.top = row * PITCH - this.svg.clientHeight / this.scale / 3;
    this.look();
  }

  wheel(event) {
    event.preventDefault();
    const { deltaX, deltaY, offsetX, offsetY } = event;
    if (event.ctrlKey) return this.zoom(Math.exp(-deltaY / 300), offsetX, offsetY);
    this.left += (event.shiftKey ? deltaY : deltaX) / this.scale;
    this.top += (event.shiftKey ? 0 : deltaY) / this.scale;
    this.look();
  }

  drag(event) {
    const { left, top } = this;
    const move = (to) => {
      this.left = left - (to.clientX - event.clientX) / this.scale;
      this.top = top - (to.clientY - event.clientY) / this.scale;
      this.look();
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", () => removeEventListener("pointermove", move), { once: true });
  }
}
