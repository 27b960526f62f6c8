// One head in full: its matrix with words on both sides, lines beside it, and the same as a table.
"use strict";

const MOST_LINKS = 8; // of a word, in the table and in the line that names them
const WORTH_NAMING = 0.02; // of the head's largest weight
const LARGEST_CANVAS = 6000; // pixels of a side
const SMALL_CELL = 20; // pixels; below it the lines go under the matrix and leave it all the width

/** The matrix of one model; `point(word, cell)` is called as the pointer or the keys move over it. */
class Matrix {
  constructor(weights, gold, point, toggle) {
    Object.assign(this, { weights, gold, point });
    this.title = make("h3");
    this.scroller = make("div", { className: "scroller" });
    this.canvas = make("canvas", { className: "full", tabIndex: 0, role: "application" });
    this.canvas.setAttribute("aria-roledescription", "attention matrix");
    this.band = make("span", { className: "band", hidden: true });
    this.cursor = make("span", { className: "cursor", hidden: true });
    this.columns = this.labels("key", "columns");
    this.rows = this.labels("query", "rows");
    this.scroller.append(make("div", { className: "corner" }), this.columns, this.rows,
      make("div", { className: "field" }, this.canvas, this.band, this.cursor));
    this.lines = new Lines(weights);
    this.both = make("div", { className: "both" }, this.scroller, this.lines.element);
    this.figures = make("dl", { className: "figures" });
    this.help = make("p", { className: "help", role: "status", hidden: true });
    this.toggle = make("button", { type: "button", className: "switch", hidden: !toggle });
    this.toggle.addEventListener("click", () => toggle(this.layer, this.head));
    this.table = make("details", { className: "table" },
      make("summary", { textContent: "The same as a table" }), make("div", { className: "wide-table", tabIndex: 0 }));
    this.table.addEventListener("toggle", () => this.fillTable());
    this.element = make("div", { className: "detail" },
      make("div", { className: "title" }, this.title, this.toggle), this.both, this.figures, this.help, this.table);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("keydown", (event) => this.walk(event));
  }

  labels(side, className) {
    const box = make("div", { className });
    box.setAttribute("aria-hidden", "true");
    this.weights.tokens(side).forEach((token, index) => box.append(makeLabel(token, side, index)));
    return box;
  }

  /** Show one head; `off` says whether it is switched off. */
  show(layer, head, off) {
    Object.assign(this, { layer, head, cell: null });
    const { weights } = this;
    const place = placeName(weights, layer, head);
    this.cursor.hidden = true;
    this.title.textContent = place;
    this.toggle.textContent = `Switch ${head < weights.heads ? "this head" : "all heads of this layer"} ${off ? "on" : "off"}`;
    this.help.hidden = true;
    this.figures.replaceChildren(...headFigures(weights, this.gold, layer, head).map(([name, value]) =>
      make("div", {}, make("dt", {}, askable(name, this.help)), make("dd", { textContent: value }))));
    const nulls = weights.queries.filter((_, query) => weights.isNull(layer, head, query)).length;
    this.canvas.setAttribute("aria-label",
      `${place}: ${weights.queries.length} words look at ${weights.keys.length}, ` +
      `${nulls} of them at nothing. Arrow keys move from cell to cell; a table follows.`);
    [...this.rows.children].forEach((label, query) => label.classList.toggle("null", weights.isNull(layer, head, query)));
    this.lines.show(layer, head);
    this.fillTable();
  }

  /** Cells as large as the place allows, down to a size that can still be read. */
  draw(colours) {
    const [T, S] = [this.weights.queries.length, this.weights.keys.length];
    const side = Math.min(Math.max(0, ...this.weights.queries.map((token) => shown(token).length)), 14);
    const room = this.element.clientWidth - 8.2 * side - 26;
    const beside = Math.floor((room - this.lines.element.offsetWidth - 24) / S);
    const fitting = beside >= SMALL_CELL ? beside : Math.floor(room / S);
    const cell = Math.max(Math.min(fitting, 34), S > 60 ? 12 : 14);
    this.scroller.style.setProperty("--cell", `${cell}px`);
    const density = Math.min(window.devicePixelRatio || 1, LARGEST_CANVAS / (cell * Math.max(S, T)));
    this.canvas.style.width = `${cell * S}px`;
    this.canvas.style.height = `${cell * T}px`;
    drawHead(this.canvas, this.weights, this.layer, this.head, cell * density, cell * density, colours, this.gold);
    this.size = cell;
  }

  highlight(word) {
    this.band.hidden = !word;
    this.lines.highlight(word);
    for (const label of this.scroller.querySelectorAll(".label.active")) label.classList.remove("active");
    if (!word) return;
    const [at, row] = [`${word.index * this.size}px`, word.side === "query"];
    Object.assign(this.band.style, row
      ? { top: at, height: `${this.size}px`, left: "0", width: "100%" }
      : { left: at, width: `${this.size}px`, top: "0", height: "100%" });
    (row ? this.rows : this.columns).children[word.index].classList.add("active");
  }

  /** Scroll to a held word's row or column. */
  reveal(word) {
    if (!word || this.weights.tokens(word.side)[word.index] === undefined) return;
    const at = word.index * this.size;
    if (word.side === "query") this.scroller.scrollTop = at - this.scroller.clientHeight / 2;
    else this.scroller.scrollLeft = at - this.scroller.clientWidth / 2;
  }

  /** Scroll as another matrix does, which may be of another size. */
  follow(other) {
    for (const [place, whole, seen] of [["scrollTop", "scrollHeight", "clientHeight"], ["scrollLeft", "scrollWidth", "clientWidth"]]) {
      const share = other[place] / Math.max(other[whole] - other[seen], 1);
      const wanted = Math.round(share * (this.scroller[whole] - this.scroller[seen]));
      if (Math.abs(this.scroller[place] - wanted) > 1) this.scroller[place] = wanted;
    }
  }

  hover(event) {
    const key = Math.floor(event.offsetX / this.size);
    const query = Math.floor(event.offsetY / this.size);
    if (query >= 0 && key >= 0 && query < this.weights.queries.length && key < this.weights.keys.length)
      this.mark(query, key);
  }

  mark(query, key) {
    if (this.cell && this.cell[0] === query && this.cell[1] === key) return;
    this.cell = [query, key];
    this.cursor.hidden = false;
    Object.assign(this.cursor.style, { left: `${key * this.size}px`, top: `${query * this.size}px` });
    this.point({ side: "query", index: query }, this.cell);
    this.columns.children[key].classList.add("active");
  }

  leave() {
    this.cell = null;
    this.cursor.hidden = true;
    this.point(null, null);
  }

  walk(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !this.weights.queries.length) return;
    event.preventDefault();
    const [query, key] = this.cell ? [this.cell[0] + step[0], this.cell[1] + step[1]] : [0, 0];
    const inside = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.mark(inside(query, this.weights.queries.length), inside(key, this.weights.keys.length));
    this.cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Every word with what it looks at; made only when it is open. */
  fillTable() {
    if (!this.table.open) return;
    const table = make("table");
    const head = table.createTHead().insertRow();
    for (const name of ["word", "looks at"]) head.append(make("th", { scope: "col", textContent: name }));
    const body = table.createTBody();
    this.weights.queries.forEach((token, query) => {
      const row = body.insertRow();
      row.append(make("th", { scope: "row", dir: "auto", textContent: shown(token) }));
      row.append(make("td", { dir: "auto", textContent: linkText(this.weights, this.layer, this.head, "query", query) }));
    });
    this.table.lastChild.replaceChildren(table);
  }
}

/** "“dog” 0.83, “the” 0.10 and 3 smaller" of one word in one head, or "nothing". */
function linkText(weights, layer, head, side, index) {
  const links = weights.links(layer, head, side, index);
  if (!links.length) return side === "query" ? "nothing" : "no word";
  const other = weights.tokens(side === "query" ? "key" : "query");
  const named = links
    .filter(([, , share], rank) => rank < 1 || (rank < MOST_LINKS && Math.abs(share) >= WORTH_NAMING))
    .map(([place, value, share]) => `${quoted(other[place])} ${weights.figure(value, share)}`);
  const rest = links.length - named.length;
  return named.join(", ") + (rest ? ` and ${rest} smaller` : "");
}
