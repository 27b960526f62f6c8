// Heads × layers as small multiples: a grid of buttons, each the picture of a head with one figure below it.
"use strict";

const TILE = 150; // pixels of a picture's longer side, before the screen's own density
const NARROW = 4; // heads in a row on a phone

/** The grid of one model; `choose(layer, head)` is called when one is chosen. */
class Heads {
  constructor(weights, gold, choose) {
    this.weights = weights;
    this.gold = gold;
    this.tiles = [];
    this.element = make("div", { className: "heads", role: "grid" });
    this.element.setAttribute("aria-label", "Heads of every layer; arrow keys move, Enter chooses");
    this.element.style.setProperty("--heads", weights.heads);
    this.element.style.setProperty("--few", Math.min(weights.heads, NARROW));
    for (let layer = 0; layer < weights.layers; layer++) {
      const row = make("div", { className: "layer", role: "row" });
      row.append(make("span", { className: "layer-name", role: "rowheader", textContent: `Layer ${layer + 1}` }));
      const tiles = make("div", { className: "tiles", role: "presentation" });
      for (let head = 0; head < weights.heads; head++) tiles.append(this.tile(layer, head, choose));
      row.append(tiles);
      this.element.append(row);
    }
    this.element.addEventListener("keydown", (event) => this.move(event));
  }

  tile(layer, head, choose) {
    const [T, S] = [this.weights.queries.length, this.weights.keys.length];
    const button = make("button", { type: "button", className: "tile", tabIndex: -1 });
    const picture = make("span", { className: "picture" });
    picture.style.aspectRatio = String(Math.min(Math.max(S / T, 0.7), 1.6));
    const canvas = make("canvas", {});
    const band = make("span", { className: "band", hidden: true });
    const caption = make("span", { className: "caption", dir: "auto" });
    picture.append(canvas, band);
    button.append(picture, caption);
    button.addEventListener("click", () => choose(layer, head));
    const cell = make("div", { className: "cell", role: "gridcell" });
    cell.append(button);
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

  /** Say what stands under each head, and which is chosen. */
  describe(layer, head, name) {
    this.figureName = name;
    for (const tile of this.tiles) {
      const chosen = tile.layer === layer && tile.head === head;
      tile.cell.setAttribute("aria-selected", chosen);
      tile.button.classList.toggle("chosen", chosen);
      tile.button.tabIndex = chosen ? 0 : -1;
      tile.button.setAttribute(
        "aria-label",
        `Layer ${tile.layer + 1}, head ${tile.head + 1}: ${headFigures(this.weights, this.gold, tile.layer, tile.head)
          .map(([term, value]) => `${term} ${value}`)
          .join(", ")}`,
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
    const H = this.weights.heads;
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
    found.push(["AER", (100 * gold.aer[layer][head]).toFixed(1)]);
    found.push(["AER, shifted", (100 * gold.aer_shifted[layer][head]).toFixed(1)]);
  }
  return found;
}

function figureText(weights, gold, name, layer, head) {
  if (name === "aer") return gold ? (100 * gold.aer[layer][head]).toFixed(1) : "\u2013";
  return percent(weights.level[name][layer][head]);
}

/** An element with properties; text only ever comes in as textContent. */
function make(tag, properties) {
  const { role, dir, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  if (role) element.setAttribute("role", role);
  if (dir) element.dir = dir;
  return element;
}
