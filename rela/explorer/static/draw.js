// Weights as colours on a canvas; the colours themselves are in style.css, so that light and dark have their own.
"use strict";

/** The page's colours as they are now: 256 steps for weights above and below zero, and the rest by name. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const steps = (name) => ramp([0, 1, 2, 3].map((i) => rgb(read(`--${name}-${i}`))));
  return {
    plus: steps("plus"), minus: steps("minus"), nullRow: read("--null-row"), hatch: read("--null-hatch"),
    forbidden: read("--forbidden"), gold: read("--gold"), ink: read("--ink"),
  };
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** 256 colours through the given ones, evenly. */
function ramp(stops) {
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((value, c) => Math.round(value + (stops[low + 1][c] - value) * (at - low)));
  });
}

/** The colour of a share of the head's largest weight, as [r, g, b]. */
const colourOf = (share, colours) => (share < 0 ? colours.minus : colours.plus)[Math.round(Math.abs(share) * 255)];

/** Draw one head with cells of `width` × `height` pixels; gold is {sure, possible} or null. */
function drawHead(canvas, weights, layer, head, width, height, colours, gold) {
  const [T, S] = [weights.queries.length, weights.keys.length];
  if (!T) return void Object.assign(canvas, { width: 1, height: 1 }); // the shifted view of an empty target
  canvas.width = Math.round(S * width);
  canvas.height = Math.round(T * height);
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = width < 1 || height < 1;
  pen.drawImage(cells(weights, layer, head, colours), 0, 0, canvas.width, canvas.height);
  if (weights.level.reach) drawForbidden(pen, weights, width, height, colours);
  for (let query = 0; query < T; query++)
    if (weights.isNull(layer, head, query)) drawNull(pen, query * height, weights.reach(query) * width, height, colours);
  if (gold && Math.min(width, height) >= 6) drawGold(pen, gold, width, height, colours);
}

/** One pixel a weight; a weight of zero stays clear. */
function cells(weights, layer, head, colours) {
  const [T, S] = [weights.queries.length, weights.keys.length];
  const small = new OffscreenCanvas(S, T);
  const pen = small.getContext("2d");
  const image = pen.createImageData(S, T);
  const from = weights.start(layer, head);
  for (let i = 0; i < T * S; i++) {
    const code = weights.codes[from + i];
    if (code === weights.zero) continue;
    const [r, g, b] = colourOf((code - weights.zero) / weights.steps, colours);
    image.data.set([r, g, b, 255], 4 * i);
  }
  pen.putImageData(image, 0, 0);
  return small;
}

function drawForbidden(pen, weights, width, height, colours) {
  pen.fillStyle = colours.forbidden;
  weights.queries.forEach((_, query) => {
    const from = Math.round(weights.reach(query) * width);
    const top = Math.round(query * height);
    pen.fillRect(from, top, pen.canvas.width - from, Math.round((query + 1) * height) - top);
  });
}

/** A grey band, hatched where there is room for it. */
function drawNull(pen, top, length, height, colours) {
  pen.save();
  pen.beginPath();
  pen.rect(0, top, length, height);
  pen.clip();
  pen.fillStyle = colours.nullRow;
  pen.fill();
  if (height >= 5) {
    pen.strokeStyle = colours.hatch;
    pen.lineWidth = Math.max(height / 18, 0.8);
    const step = Math.max(height / 2.5, 4);
    for (let x = -height - (top % step); x < length; x += step) {
      pen.moveTo(x, top + height);
      pen.lineTo(x + height, top);
    }
    pen.stroke();
  }
  pen.restore();
}

/** An outline around each gold link: solid if sure, dotted if only possible. */
function drawGold(pen, gold, width, height, colours) {
  const sure = new Set(gold.sure.map(String));
  pen.strokeStyle = colours.gold;
  pen.lineWidth = Math.max(Math.min(width, height) / 12, 1);
  for (const link of gold.possible) {
    pen.setLineDash(sure.has(String(link)) ? [] : [2 * pen.lineWidth, 1.5 * pen.lineWidth]);
    const inset = pen.lineWidth / 2 + 0.5;
    pen.strokeRect(link[0] * width + inset, link[1] * height + inset, width - 2 * inset, height - 2 * inset);
  }
  pen.setLineDash([]);
}
