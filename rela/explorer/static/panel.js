// One model's column: what it says, its words, the heads, the chosen head in full, and a line for what is pointed at.
"use strict";

const SIDE_NAMES = {
  cross: { key: "source words, looked at", query: "target words, looking" },
  shifted: { key: "source words, looked at", query: "target words, looking one step later" },
  encoder: { key: "source words, looked at", query: "source words, looking" },
  decoder: { key: "target words before, looked at", query: "target words, looking" },
};

const UNLIKELY = Math.log(0.01); // a word's log-probability below it is marked

class Panel {
  /**
   * `actions` are choose(layer, head), point(word), hold(word) and, where heads can be switched, toggle(layer, head) and
   * allOn(). `before` is the view before the target was exchanged, or null; `level` is "word" or "subword".
   */
  constructor(view, type, level, weights, gold, before, actions) {
    Object.assign(this, { view, type, weights, actions });
    this.off = new Set((view.ablation?.off ?? []).map(String));
    this.logProbs = type === "encoder" ? null : view.log_probs[level];
    this.element = make("section", { className: "panel card" });
    this.element.setAttribute("aria-label", `Model ${view.model}`);
    const title = make("h2", { textContent: view.model });
    title.append(make("span", { className: "kind", textContent: weights.kind }));
    const steps = view.attention.cross.subword.queries.length;
    const about = make("p", { className: "about", textContent:
      `${view.forced ? "given target" : "own translation"} \u00b7 log-probability ${minus(view.log_prob)}, ` +
      `${minus(view.log_prob / steps)} a subword` });
    const translation = make("p", { className: "translation", dir: "auto", textContent: shown(view.target) || "(an empty translation)" });
    const changes = [...showUnknown(view), ...(view.ablation ? [showAblation(view, actions.allOn)] : []), ...(before ? [showSwap(view, before)] : [])];
    this.strips = { key: this.strip("key"), query: this.strip("query") };
    this.line = make("p", { className: "line", role: "status" });
    this.heads = new Heads(weights, gold, actions.choose);
    this.matrix = new Matrix(weights, gold, (word, cell) => this.actions.point(word, this, cell), actions.toggle);
    const pictures = make("div", { className: "pictures" }, this.heads.element, this.matrix.element);
    this.element.append(title, about, ...(view.forced ? [] : [translation]), ...changes,
      this.strips.key, this.strips.query, this.line, pictures);
    this.element.addEventListener("click", (event) => {
      const label = event.target.closest(".label[data-index]");
      if (label) this.actions.hold({ side: label.dataset.side, index: Number(label.dataset.index) });
    });
    this.element.addEventListener("pointerover", (event) => this.over(event));
    this.element.addEventListener("pointerout", (event) => {
      if (event.target.closest("[data-index]")) this.actions.point(null);
    });
  }

  /** One side's words as buttons; one of them is in the tab order and arrows reach the others. */
  strip(side) {
    const box = make("div", { className: "strip", role: "toolbar" });
    const name = SIDE_NAMES[this.type][side];
    box.setAttribute("aria-label", `${name}; arrow keys move, Enter holds a word`);
    const [words, ...more] = name.split(/(?=, )/);
    box.append(make("span", { className: "strip-name", textContent: words }, make("span", { textContent: more.join("") })));
    this.weights.tokens(side).forEach((token, index) => {
      const chip = make("button", { type: "button", className: "chip", dir: "auto", textContent: shown(token) });
      chip.tabIndex = index ? -1 : 0;
      chip.dataset.side = side;
      chip.dataset.index = index;
      if (side === "query" && this.logProbs) this.addLogProb(chip, this.logProbs[index]);
      chip.addEventListener("focus", () => this.actions.point({ side, index }, this));
      chip.addEventListener("blur", () => this.actions.point(null));
      chip.addEventListener("click", () => this.actions.hold({ side, index }));
      box.append(chip);
    });
    box.addEventListener("keydown", (event) => this.walk(event, box));
    return box;
  }

  addLogProb(chip, value) {
    chip.dataset.score = minus(value);
    chip.title = `log-probability ${minus(value)}`;
    chip.classList.toggle("unlikely", value < UNLIKELY);
  }

  /** Whether a head is switched off; the layer attention is where all heads of its layer are. */
  isOff(layer, head) {
    const type = this.type === "shifted" ? "cross" : this.type;
    if (head < this.weights.heads) return this.off.has(`${type},${layer},${head}`);
    return Array.from({ length: this.weights.heads }, (_, one) => this.isOff(layer, one)).every(Boolean);
  }

  walk(event, box) {
    const chips = [...box.querySelectorAll(".chip")];
    const at = chips.indexOf(document.activeElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: chips.length - 1 }[event.key];
    if (at < 0 || !chips[to]) return;
    event.preventDefault();
    chips[at].tabIndex = -1;
    chips[to].tabIndex = 0;
    chips[to].focus();
  }

  over(event) {
    const part = event.target.closest("[data-index]");
    if (part) this.actions.point({ side: part.dataset.side, index: Number(part.dataset.index) }, this);
  }

  show(layer, head, figureName, held, colours) {
    Object.assign(this, { layer, head, held });
    this.matrix.show(layer, head, this.isOff(layer, head));
    this.matrix.draw(colours);
    this.heads.describe(layer, head, figureName, (...place) => this.isOff(...place));
    this.highlight(held);
    this.matrix.reveal(held);
  }

  draw(colours) {
    this.heads.draw(colours);
    this.matrix.draw(colours);
  }

  has(word, token) {
    const mine = this.weights.tokens(word.side)[word.index];
    return mine !== undefined && (token === undefined || mine === token);
  }

  /** Show the links of a word, or of the held one, in the words, in every head and in the matrix. */
  highlight(word, cell) {
    const active = word && this.has(word) ? word : null;
    this.heads.highlight(active);
    this.matrix.highlight(active);
    for (const chip of this.element.querySelectorAll(".chip")) {
      const same = Boolean(active) && chip.dataset.side === active.side && Number(chip.dataset.index) === active.index;
      chip.classList.toggle("active", same);
      chip.style.setProperty("--share", 0);
      if (chip.dataset.side === this.held?.side && Number(chip.dataset.index) === this.held?.index)
        chip.setAttribute("aria-pressed", "true");
      else chip.removeAttribute("aria-pressed");
    }
    this.line.textContent = active ? this.sentence(active, cell) : "Point at a word, or move to it, to see its links in every head.";
    this.line.classList.toggle("idle", !active);
    if (!active) return;
    const chips = this.strips[active.side === "query" ? "key" : "query"].querySelectorAll(".chip");
    for (const [place, , share] of this.weights.links(this.layer, this.head, active.side, active.index))
      chips[place].style.setProperty("--share", Math.abs(share).toFixed(3));
  }

  /** What the line says: one word's links, or one cell's weight. */
  sentence(word, cell) {
    const token = quoted(this.weights.tokens(word.side)[word.index]);
    if (cell) {
      const [query, key] = cell;
      const other = quoted(this.weights.keys[key]);
      if (key >= this.weights.reach(query)) return `${token} may not look at ${other}`;
      const share = this.weights.share(this.layer, this.head, query, key);
      return `${token} \u2192 ${other}: ${this.weights.figure(share * this.weights.level.largest[this.layer][this.head], share)}`;
    }
    const links = linkText(this.weights, this.layer, this.head, word.side, word.index);
    if (word.side === "key") return `${token} is looked at by ${links}`;
    const empty = this.weights.nullHeads(word.index);
    const all = this.weights.layers * this.weights.heads;
    const here = this.weights.isNull(this.layer, this.head, word.index);
    return `${token} looks at ${links}${empty ? ` (${here ? "" : "at nothing "}in ${empty} of ${all} heads)` : ""}`;
  }
}
