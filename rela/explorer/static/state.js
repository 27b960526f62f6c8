// The address holds all that is shown: text, models, attention type, level, each model's layer and head, the held word.
"use strict";

const TYPES = { cross: "cross", encoder: "encoder", decoder: "decoder" };
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
    type: pick("type", TYPES, "cross"),
    level: pick("level", LEVELS, "word"),
    figure: pick("figure", FIGURES, "null_rate"),
    word: readWord(given.get("word")),
    models: [],
    unknown: [],
  };
  const layers = given.getAll("layer");
  const heads = given.getAll("head");
  given.getAll("model").forEach((name, i) => {
    const model = start.models.find((known) => known.name === name);
    if (!model) state.unknown.push(name);
    else if (state.models.length < MOST_MODELS && !state.models.some((other) => other.name === name))
      state.models.push({ name, ...place(model, state.type, layers[i], heads[i]) });
  });
  if (!state.models.length)
    state.models = start.models.slice(0, MOST_MODELS).map((model) => ({ name: model.name, ...place(model, state.type) }));
  return state;
}

/** Layer and head, counted from 0, of texts that count from 1; where they are missing, the head that aligns best. */
function place(model, type, layerText, headText) {
  const [layer, head] = [Number(layerText) - 1, Number(headText) - 1];
  const inside = (value, count) => Number.isInteger(value) && value >= 0 && value < count;
  if (inside(layer, model.layers[type]) && inside(head, model.heads)) return { layer, head };
  const choice = type === "cross" && model.choice;
  if (choice && inside(choice.layer, model.layers.cross))
    return { layer: choice.layer, head: inside(choice.head, model.heads) ? choice.head : 0 };
  return { layer: 0, head: 0 };
}

/** {side, index} of "q3" or "k0", or null. */
function readWord(text) {
  const parts = /^([qk])(\d{1,4})$/.exec(text ?? "");
  return parts && { side: SIDES[parts[1]], index: Number(parts[2]) };
}

/** The address of a state. */
function addressOf(state) {
  const written = new URLSearchParams();
  if (state.source) written.set("source", state.source);
  if (state.target) written.set("target", state.target);
  for (const { name, layer, head } of state.models) {
    written.append("model", name);
    written.append("layer", layer + 1);
    written.append("head", head + 1);
  }
  written.set("type", state.type);
  written.set("level", state.level);
  written.set("figure", state.figure);
  if (state.word) written.set("word", state.word.side[0] + state.word.index);
  return `#${written}`;
}
