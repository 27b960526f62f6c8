// The address holds all that is shown: text, models with their heads and what is off, type, level, the held word.
"use strict";

const TYPES = { cross: "cross", shifted: "shifted", encoder: "encoder", decoder: "decoder" };
const WITH_AER = ["cross", "shifted"];
const LEVELS = { word: "words", subword: "subwords" };
const FIGURES = { null_rate: "null rate", sparsity: "sparsity", sink: "share on the sink", aer: "AER" };
const SIDES = { q: "query", k: "key" };
const MOST_MODELS = 2;

/** The state an address stands for; what is missing or unknown in it takes its default. */
function readState(start, address) {
  const given = new URLSearchParams(address.replace(/^#/, ""));
  const pick = (name, known, otherwise) => (Object.hasOwn(known, given.get(name)) ? given.get(name) : otherwise);
  const state = {
    source: given.get("source") ?? "",
    target: given.get("target") ?? "",
    before: given.get("before"), // the target that another sentence's one stands for now; "" is the own translation
    guide: pick("guide", GUIDE, null),
    type: pick("type", TYPES, firstType(start)),
    level: pick("level", LEVELS, "word"),
    figure: pick("figure", FIGURES, "null_rate"),
    word: readWord(given.get("word")),
    models: [],
    unknown: [],
  };
  if (state.figure === "aer" && !WITH_AER.includes(state.type)) state.figure = "null_rate";
  const [layers, heads, off] = ["layer", "head", "off"].map((name) => given.getAll(name));
  given.getAll("model").forEach((name, i) => {
    const model = start.models.find((known) => known.name === name);
    if (!model) state.unknown.push(name);
    else if (state.models.length < MOST_MODELS && !state.models.some((other) => other.name === name))
      state.models.push({ name, ...place(model, state.type, layers[i], heads[i]), off: readOff(model, off[i]) });
  });
  if (!state.models.length)
    state.models = firstModels(start).map((model) => ({ name: model.name, ...place(model, state.type), off: [] }));
  return state;
}

const sameLanguages = (one, other) => String(one.languages) === String(other.languages);
const isTurned = (one, other) => String(one.languages) === String([...other.languages].reverse());

/** The models that are shown unless others are asked for: the first, and one that translates the same languages. */
const firstModels = (start) => start.models.filter((model) => sameLanguages(model, start.models[0])).slice(0, MOST_MODELS);

/** The examples as the model of this name reads them; they are in the first model's languages. */
function examplesFor(start, name) {
  const model = start.models.find((known) => known.name === name);
  if (sameLanguages(model, start.models[0])) return start.examples;
  return isTurned(model, start.models[0]) ? start.examples.map(({ source, target }) => ({ source: target, target: source })) : [];
}

/** The attention type that the first model aligns best with. */
const firstType = (start) => (start.models[0]?.choice?.shifted ? "shifted" : "cross");

/** The heads [type, layer, head] of a text such as "cross.2.1 cross.2.3", counted from 1; those there are, each once. */
function readOff(model, text) {
  const found = new Map();
  for (const name of (text ?? "").split(" ")) {
    const [, type, layer, head] = /^(cross|encoder|decoder)\.(\d{1,3})\.(\d{1,3})$/.exec(name) ?? [];
    if (type && layer >= 1 && layer <= model.layers[type] && head >= 1 && head <= model.heads)
      found.set(name, [type, layer - 1, head - 1]);
  }
  return [...found.values()];
}

const writeOff = (off) => off.map(([type, layer, head]) => `${type}.${layer + 1}.${head + 1}`).join(" ");

/**
 * Layer and head, counted from 0, of texts that count from 1; where they are missing, the head that aligns best.
 * The head after the last is the layer attention, in the address "mean".
 */
function place(model, type, layerText, headText) {
  const [layer, head] = [Number(layerText) - 1, headText === "mean" ? model.heads : Number(headText) - 1];
  const inside = (value, count) => Number.isInteger(value) && value >= 0 && value < count;
  if (inside(layer, model.layers[type]) && inside(head, model.heads + 1)) return { layer, head };
  if (model.choice && WITH_AER.includes(type)) return { layer: model.choice.layer, head: model.choice.head };
  return { layer: 0, head: 0 };
}

/** {side, index} of "q3" or "k0", or null. */
function readWord(text) {
  const parts = /^([qk])(\d{1,4})$/.exec(text ?? "");
  return parts && { side: SIDES[parts[1]], index: Number(parts[2]) };
}

/** The address of a state. */
function addressOf(start, state) {
  const written = new URLSearchParams();
  if (state.source) written.set("source", state.source);
  if (state.target) written.set("target", state.target);
  if (state.before !== null) written.set("before", state.before);
  for (const { name, layer, head, off } of state.models) {
    written.append("model", name);
    written.append("layer", layer + 1);
    written.append("head", head === start.models.find((model) => model.name === name).heads ? "mean" : head + 1);
    if (state.models.some((model) => model.off.length)) written.append("off", writeOff(off));
  }
  written.set("type", state.type);
  written.set("level", state.level);
  written.set("figure", state.figure);
  if (state.guide) written.set("guide", state.guide);
  if (state.word) written.set("word", state.word.side[0] + state.word.index);
  return `#${written}`;
}
