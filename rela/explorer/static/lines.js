// One head as lines between the two sentences: those looked at on the left, those that look on the right.
"use strict";

const WORTH_A_LINE = 0.1; // of the head's largest weight
const MOST_LINES = 1500;
const LINE_ROOM = 92; // pixels between the sentences

class Lines {
  constructor(weights) {
    this.weights = weights;
    this.element = make("div", { className: "lines" });
    this.element.setAttribute("aria-hidden", "true"); // the words above and the table say the same
    this.columns = { key: this.words("key"), query: this.words("query") };
    this.drawing = makeSvg("svg", { width: LINE_ROOM });
    this.element.append(this.columns.key, this.drawing, this.columns.query);
  }

  words(side) {
    const box = make("div", { className: `words ${side}` });
    this.weights.tokens(side).forEach((token, index) => box.append(makeLabel(token, side, index)));
    return box;
  }

  show(layer, head) {
    Object.assign(this, { layer, head });
    const { weights } = this;
    const count = Math.max(weights.queries.length, weights.keys.length, 1);
    const pitch = count > 40 ? 16 : count > 20 ? 19 : 24;
    this.element.style.setProperty("--pitch", `${pitch}px`);
    this.drawing.setAttribute("height", count * pitch);
    const found = weights.queries.flatMap((_, query) =>
      weights.links(layer, head, "query", query).map(([key, , share]) => ({ query, key, share })));
    this.paths = found
      .filter(({ share }) => Math.abs(share) >= WORTH_A_LINE)
      .sort((a, b) => Math.abs(b.share) - Math.abs(a.share))
      .slice(0, MOST_LINES)
      .map((link) => ({ ...link, path: this.path(link, pitch) }));
    this.drawing.replaceChildren(...this.paths.map(({ path }) => path));
    [...this.columns.query.children].forEach((label, query) =>
      label.classList.toggle("null", weights.isNull(layer, head, query)));
    this.highlight(null);
  }

  path({ query, key, share }, pitch) {
    const [from, to] = [(key + 0.5) * pitch, (query + 0.5) * pitch];
    const bend = LINE_ROOM / 2;
    return makeSvg("path", {
      d: `M2,${from} C${bend},${from} ${bend},${to} ${LINE_ROOM - 2},${to}`,
      class: share < 0 ? "below" : "above",
      "stroke-width": (0.8 + 3.2 * Math.abs(share)).toFixed(2),
      "stroke-opacity": (0.15 + 0.85 * Math.abs(share)).toFixed(2),
    });
  }

  /** The lines of one word alone; null shows all of them. */
  highlight(word) {
    for (const link of this.paths)
      link.path.classList.toggle("faint", Boolean(word) && link[word.side] !== word.index);
    for (const label of this.element.querySelectorAll(".label.active")) label.classList.remove("active");
    if (word) this.columns[word.side].children[word.index]?.classList.add("active");
  }
}

/** A word beside a picture, for the eye and the pointer; the strips of words are for keys and readers. */
function makeLabel(token, side, index) {
  // Isolated but not turned: a word that runs from right to left still ends at the picture.
  const label = make("span", { className: "label", textContent: `\u2068${shown(token)}\u2069` });
  label.dataset.side = side;
  label.dataset.index = index;
  return label;
}
