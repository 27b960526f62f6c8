// One head in full: its matrix with words on both sides, and the same as a table to read or to be read to.
"use strict";

const MOST_LINKS = 8; // of a word, in the table and in the line that names them
const WORTH_NAMING = 0.02; // of the head's largest weight
const LARGEST_CANVAS = 6000; // pixels of a side

/** The matrix of one model; `point(word, cell)` is called as the pointer or the keys move over it. */
class Matrix {
  constructor(weights, gold, point) {
    this.weights = weights;
    this.gold = gold;
    this.point = point;
    this.element = make("div", { className: "detail" });
    this.title = make("h3", {});
    this.figures = make("dl", { className: "figures" });
    this.scroller = make("div", { className: "scroller" });
    this.canvas = make("canvas", { className: "full", tabIndex: 0, role: "application" });
    this.canvas.setAttribute("aria-roledescription", "attention matrix");
    this.band = make("span", { className: "band", hidden: true });
    this.cursor = make("span", { className: "cursor", hidden: true });
    const field = make("div", { className: "field" });
    field.append(this.canvas, this.band, this.cursor);
    this.columns = this.labels("key", "columns");
    this.rows = this.labels("query", "rows");
    this.scroller.append(make("div", { className: "corner" }), this.columns, this.rows, field);
    this.table = make("details", { className: "table" });
    this.table.append(make("summary", { textContent: "The same as a table" }), make("div", { className: "wide-table" }));
    this.table.addEventListener("toggle", () => this.fillTable());
    this.element.append(this.title, this.figures, this.scroller, this.table);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("keydown", (event) => this.walk(event));
  }

  /** Words along one side; the strips above are for keys and readers, these for the eye and the pointer. */
  labels(side, className) {
    const box = make("div", { className });
    box.setAttribute("aria-hidden", "true");
    this.weights.tokens(side).forEach((token, index) => {
      // Isolated but not turned: a word that runs from right to left still ends at the matrix.
      const label = make("span", { className: "label", textContent: `\u2068${shown(token)}\u2069` });
      label.dataset.side = side;
      label.dataset.index = index;
      box.append(label);
    });
    return box;
  }

  show(layer, head) {
    Object.assign(this, { layer, head, cell: null });
    this.cursor.hidden = true;
    this.title.textContent = `Layer ${layer + 1}, head ${head + 1}`;
    this.figures.replaceChildren(
      ...headFigures(this.weights, this.gold, layer, head).map(([term, value]) => {
        const pair = make("div", {});
        pair.append(make("dt", { textContent: term }), make("dd", { textContent: value }));
        return pair;
      }),
    );
    const nulls = this.weights.queries.filter((_, query) => this.weights.isNull(layer, head, query)).length;
    this.canvas.setAttribute("aria-label",
      `Layer ${layer + 1}, head ${head + 1}: ${this.weights.queries.length} words look at ${this.weights.keys.length}, ` +
      `${nulls} of them at nothing. Arrow keys move from cell to cell; a table follows.`);
    [...this.rows.children].forEach((label, query) =>
      label.classList.toggle("null", this.weights.isNull(layer, head, query)));
    this.fillTable();
  }

  /** Cells as large as the place allows, down to a size that can still be read. */
  draw(colours) {
    const [T, S] = [this.weights.queries.length, this.weights.keys.length];
    const side = Math.min(Math.max(...this.weights.queries.map((token) => shown(token).length)), 14);
    const room = this.scroller.clientWidth - 8.2 * side - 26;
    const cell = Math.max(Math.min(Math.floor(room / S), 34), S > 60 ? 12 : 14);
    this.scroller.style.setProperty("--cell", `${cell}px`);
    const density = Math.min(window.devicePixelRatio || 1, LARGEST_CANVAS / (cell * Math.max(S, T)));
    this.canvas.style.width = `${cell * S}px`;
    this.canvas.style.height = `${cell * T}px`;
    drawHead(this.canvas, this.weights, this.layer, this.head, cell * density, cell * density, colours, this.gold);
    this.size = cell;
  }

  highlight(word) {
    this.band.hidden = !word;
    for (const label of this.element.querySelectorAll(".label.active")) label.classList.remove("active");
    if (!word) return;
    const [at, row] = [`${word.index * this.size}px`, word.side === "query"];
    Object.assign(this.band.style, row
      ? { top: at, height: `${this.size}px`, left: "0", width: "100%" }
      : { left: at, width: `${this.size}px`, top: "0", height: "100%" });
    (row ? this.rows : this.columns).children[word.index].classList.add("active");
  }

  /** Scroll to a held word's row or column. */
  reveal(word) {
    if (!word || !this.weights.tokens(word.side)[word.index]) return;
    const at = word.index * this.size;
    if (word.side === "query") this.scroller.scrollTop = at - this.scroller.clientHeight / 2;
    else this.scroller.scrollLeft = at - this.scroller.clientWidth / 2;
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
    if (!step) return;
    event.preventDefault();
    const [query, key] = this.cell ? [this.cell[0] + step[0], this.cell[1] + step[1]] : [0, 0];
    const inside = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.mark(inside(query, this.weights.queries.length), inside(key, this.weights.keys.length));
    this.cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Every word with what it looks at; made only when it is open. */
  fillTable() {
    if (!this.table.open) return;
    const table = make("table", {});
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

/** "dog 0.83, the 0.10 and 3 smaller" of one word in one head, or "nothing". */
function linkText(weights, layer, head, side, index) {
  const links = weights.links(layer, head, side, index);
  if (!links.length) return side === "query" ? "nothing" : "no word";
  const other = weights.tokens(side === "query" ? "key" : "query");
  const named = links
    .filter(([, , share], rank) => rank < 1 || (rank < MOST_LINKS && Math.abs(share) >= WORTH_NAMING))
    .map(([place, value, share]) => `\u2068${shown(other[place])}\u2069 ${weights.figure(value, share)}`);
  const rest = links.length - named.length;
  return named.join(", ") + (rest ? ` and ${rest} smaller` : "");
}
