// Heads × layers as small multiples: a grid of buttons, each the picture of a head with one figure below it.
"use strict";

const TILE = 150; // pixels of a picture's longer side, before the screen's own density
const NARROW = 5; // heads, or the mean, in a row on a phone

/** The grid of one model; `choose(layer, head)` is called when one is chosen. */
class Heads {
  constructor(weights, gold, choose) {
    this.weights = weights;
    this.gold = gold;
    this.tiles = [];
    this.element = make("div", { className: "heads", role: "grid" });
    this.element.setAttribute("aria-label", "Heads of every layer; arrow keys move, Enter chooses");
    this.element.style.setProperty("--heads", weights.heads + 1);
    this.element.style.setProperty("--few", Math.min(weights.heads + 1, NARROW));
    this.element.append(this.names());
    for (let layer = 0; layer < weights.layers; layer++) {
      const row = make("div", { className: "layer", role: "row" });
      row.append(make("span", { className: "layer-name", role: "rowheader", textContent: `Layer ${layer + 1}` }));
      const tiles = make("div", { className: "tiles", role: "presentation" });
      for (let head = 0; head <= weights.heads; head++) tiles.append(this.tile(layer, head, choose));
      row.append(tiles);
      this.element.append(row);
    }
    this.element.addEventListener("keydown", (event) => this.move(event));
  }

  /** What each column is: a head, or the mean of all. */
  names() {
    const tiles = make("div", { className: "tiles", role: "presentation" });
    for (let head = 0; head <= this.weights.heads; head++)
      tiles.append(make("span", { role: "columnheader", textContent: head < this.weights.heads ? `head ${head + 1}` : "mean" }));
    return make("div", { className: "layer names", role: "row" }, make("span", { role: "presentation" }), tiles);
  }

  tile(layer, head, choose) {
    const [T, S] = [Math.max(this.weights.queries.length, 1), this.weights.keys.length];
    const button = make("button", { type: "button", className: "tile", tabIndex: -1 });
    const picture = make("span", { className: "picture" });
    picture.style.aspectRatio = String(Math.min(Math.max(S / T, 0.7), 1.6));
    const canvas = make("canvas", {});
    const band = make("span", { className: "band", hidden: true });
    const caption = make("span", { className: "caption", dir: "auto" });
    caption.setAttribute("aria-hidden", "true"); // the button's own name says all figures
    picture.append(canvas, band);
    button.append(picture);
    const cell = make("div", { className: "cell", role: "gridcell" }, button, caption);
    cell.addEventListener("click", () => choose(layer, head));
    this.tiles.push({ layer, head, button, cell, canvas, band, caption });
    return cell;
  }

  draw(colours) {
    const [T, S] = [this.weights.queries.length, this.weights.keys.length];
    const density = Math.min(window.devicePixelRatio || 1, 2);
    const whole = (count) => Math.max(Math.round((TILE * density) / count), 1);
    for (const { layer, head, canvas } of this.tiles)
      drawHead(canvas, this.weights, layer, head, whole(S), whole(T), colours, this.gold);
  }

  /** Say what stands under each head, which is chosen, and which are switched off. */
  describe(layer, head, name, isOff) {
    this.figureName = name;
    for (const tile of this.tiles) {
      const chosen = tile.layer === layer && tile.head === head;
      tile.cell.setAttribute("aria-selected", chosen);
      tile.button.tabIndex = chosen ? 0 : -1;
      const off = isOff(tile.layer, tile.head);
      tile.cell.classList.toggle("off", off);
      tile.button.setAttribute(
        "aria-label",
        `${placeName(this.weights, tile.layer, tile.head)}${off ? ", switched off" : ""}: ` +
          headFigures(this.weights, this.gold, tile.layer, tile.head).map(([term, value]) => `${term} ${value}`).join(", "),
      );
      tile.button.title = tile.button.getAttribute("aria-label");
    }
    this.highlight(null);
  }

  /** Fade all but one word's row or column in every head and name its strongest link; null puts it back. */
  highlight(word) {
    for (const tile of this.tiles) {
      tile.band.hidden = !word;
      tile.caption.classList.toggle("link", Boolean(word));
      if (!word) {
        tile.caption.textContent = figureText(this.weights, this.gold, this.figureName, tile.layer, tile.head);
        continue;
      }
      const count = this.weights.tokens(word.side).length;
      const [from, size] = [`${(100 * word.index) / count}%`, `${100 / count}%`];
      const row = word.side === "query";
      Object.assign(tile.band.style, row
        ? { top: from, height: size, left: "0", width: "100%" }
        : { left: from, width: size, top: "0", height: "100%" });
      const links = this.weights.links(tile.layer, tile.head, word.side, word.index);
      const other = this.weights.tokens(row ? "key" : "query");
      tile.caption.textContent = links.length ? shown(other[links[0][0]]) : "\u2205";
    }
  }

  move(event) {
    const at = this.tiles.findIndex(({ button }) => button === document.activeElement);
    const H = this.weights.heads + 1;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -H, ArrowDown: H };
    let to = at + (steps[event.key] ?? 0);
    if (event.key === "Home") to = at - (at % H);
    if (event.key === "End") to = at - (at % H) + H - 1;
    if (at < 0 || to === at || !this.tiles[to]) return;
    event.preventDefault();
    this.tiles[at].button.tabIndex = -1;
    this.tiles[to].button.tabIndex = 0;
    this.tiles[to].button.focus();
  }
}

/** "Layer 2, head 3", or "Layer 2, mean of all heads", which is its layer attention. */
function placeName(weights, layer, head) {
  return `Layer ${layer + 1}, ${head < weights.heads ? `head ${head + 1}` : "mean of all heads"}`;
}

/** [name, value] of everything measured on one head. */
function headFigures(weights, gold, layer, head) {
  const rows = weights.queries.filter((_, query) => weights.isNull(layer, head, query)).length;
  const found = [
    ["sparsity", percent(weights.level.sparsity[layer][head])],
    ["null rate", `${percent(weights.level.null_rate[layer][head])} (${rows} of ${weights.queries.length})`],
    [`on ${weights.sinkName}`, percent(weights.level.sink[layer][head])],
    ["largest weight", figure(weights.level.largest[layer][head])],
  ];
  if (gold) {
    found.push(["AER", percent(gold.aer[layer][head], 1)]);
    found.push(["AER, shifted", percent(gold.aer_shifted[layer][head], 1)]);
  }
  return found;
}

/** What stands under a head: a figure, and a word that says which. */
function figureText(weights, gold, name, layer, head) {
  if (name === "aer") return `AER ${percent(gold[weights.type === "shifted" ? "aer_shifted" : "aer"][layer][head], 1)}`;
  const word = { null_rate: "null", sparsity: "sparse", sink: weights.sinkName }[name];
  return `${word} ${percent(weights.level[name][layer][head])}`;
}
