// Payload to numbers: the weights of one level of one attention type, unpacked once and read by place.
"use strict";

/** The weights [L, H + 1, T, S] of a level, with the questions the page asks of them; the last of a layer is its mean. */
class Weights {
  constructor(type, attention, level, codes) {
    this.type = type;
    this.layers = attention.layers;
    this.heads = attention.heads;
    this.kind = attention.kind;
    this.sinkName = attention.sink;
    this.level = level;
    this.codes = codes;
    this.queries = level.queries;
    this.keys = level.keys;
    this.zero = level.signed ? 128 : 0;
    this.steps = level.signed ? 127 : 255;
  }

  /** Where the matrix of one head begins in the bytes. */
  start(layer, head) {
    return (layer * (this.heads + 1) + head) * this.queries.length * this.keys.length;
  }

  /** A weight as a share of its head's largest, from -1 to 1. */
  share(layer, head, query, key) {
    return (this.codes[this.start(layer, head) + query * this.keys.length + key] - this.zero) / this.steps;
  }

  /** How many keys a query may look at. */
  reach(query) {
    return this.level.reach ? this.level.reach[query] : this.keys.length;
  }

  isNull(layer, head, query) {
    const from = this.start(layer, head) + query * this.keys.length;
    for (let i = from; i < from + this.keys.length; i++) if (this.codes[i] !== this.zero) return false;
    return true;
  }

  /** The links of one word, largest first: [index on the other side, weight, share of the head's largest]. */
  links(layer, head, side, index) {
    const found = [];
    const count = side === "query" ? this.keys.length : this.queries.length;
    for (let other = 0; other < count; other++) {
      const [query, key] = side === "query" ? [index, other] : [other, index];
      const share = this.share(layer, head, query, key);
      if (share !== 0) found.push([other, share * this.level.largest[layer][head], share]);
    }
    return found.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  }

  /** A weight as one reads it; of the smallest step only a bound is known. */
  figure(value, share) {
    return Math.abs(share) > 1.01 / this.steps || share === 0 ? figure(value) : `below ${figure(Math.abs(1.5 * value))}`;
  }

  /** In how many heads, of all layers, a query looks at nothing. */
  nullHeads(query) {
    let count = 0;
    for (let layer = 0; layer < this.layers; layer++)
      for (let head = 0; head < this.heads; head++) count += this.isNull(layer, head, query);
    return count;
  }

  tokens(side) {
    return side === "query" ? this.queries : this.keys;
  }
}

/** Unpack one level of one attention type of a view; unpacked bytes stay with the level. */
async function unpack(view, type, levelName) {
  const attention = view.attention[type];
  const level = attention[levelName];
  if (!level.unpacked) {
    const letters = atob(level.weights);
    const packed = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const codes = new Uint8Array(await new Response(stream).arrayBuffer());
    level.unpacked = new Weights(type, attention, level, codes);
  }
  return level.unpacked;
}

/**
 * A token as it can be shown: characters that show nothing, or turn their neighbours round, get a sign.
 * Joiners (U+200C, U+200D) stay where they join: within emoji such as families, in Persian, in Hindi.
 */
function shown(token) {
  return token
    .replace(/(?<![^\s\u200c\u200d])[\u200c\u200d]+|[\u200c\u200d]+(?![^\s\u200c\u200d])/g, "\ufffd")
    .replace(/[\u0000-\u001f]/g, (letter) => String.fromCharCode(0x2400 + letter.charCodeAt(0)))
    .replace(/\u007f/g, "\u2421")
    .replace(/[\u0080-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff]/g, "\ufffd");
}

/** A weight as one reads it: as many digits as its byte is worth. */
function figure(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 1 ? value.toFixed(1) : size >= 0.01 ? value.toFixed(2) : value.toPrecision(1);
}

/** A token within a sentence: in quotation marks, and of its own direction. */
const quoted = (token) => `\u201c\u2068${shown(token)}\u2069\u201d`;

const minus = (number) => number.toFixed(2).replace("-", "\u2212");
const percent = (share, digits = share > 0 && share < 0.1 ? 1 : 0) => `${(100 * share).toFixed(digits)}\u00a0%`;
