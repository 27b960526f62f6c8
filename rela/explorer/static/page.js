// The page: every change is a new address, and every address is drawn the same way, whoever wrote it.
"use strict";

const part = (id) => document.getElementById(id);
const saved = part("saved").textContent ? JSON.parse(part("saved").textContent) : null;
const views = new Map(); // what the server has answered, by question
const MOST_VIEWS = 12;
let start; // models, examples, limits
let state;
let panels = [];
let drawn = ""; // the question the panels answer
let filled = null; // the text that was last put into the form
let turn = 0; // of rendering; an answer to an older one is dropped

/** Go to a changed state: a new entry in the history, which draws it. */
function go(changes, replace = false) {
  const address = addressOf(readState(start, addressOf({ ...state, ...changes })));
  if (address === location.hash) return render();
  if (replace) location.replace(address);
  else location.hash = address;
}

async function ask(path, body) {
  const answer = await fetch(path, body && {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  }).catch(() => { throw new Error("the server does not answer; is `rela explore` still running?"); });
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  throw new Error(error);
}

/** One model's view of the state's text: from the file, from memory or from the server. */
async function viewOf(model, { source, target }) {
  if (saved) return saved.views.find((view) => view.model === model);
  const question = JSON.stringify([model, source, target]);
  if (!views.has(question)) {
    const view = await (await ask("api/view", { model, source, target: target || null })).json();
    views.set(question, view);
    if (views.size > MOST_VIEWS) views.delete(views.keys().next().value);
  }
  return views.get(question);
}

async function render() {
  const mine = ++turn;
  state = readState(start, location.hash);
  fillControls();
  say(state.unknown.length ? `There is no model called ${state.unknown.map(shown).join(", ")} here.` : "");
  if (!state.source && !saved) return clear();
  const question = JSON.stringify([state.source, state.target, state.type, state.level, state.models.map(({ name }) => name)]);
  if (question !== drawn) {
    part("panels").setAttribute("aria-busy", "true");
    try {
      const found = await Promise.all(state.models.map(async ({ name }) => {
        const view = await viewOf(name, state);
        return [view, await unpack(view, state.type, state.level)];
      }));
      if (mine !== turn) return;
      build(found);
      drawn = question;
    } catch (error) {
      if (mine !== turn) return;
      clear();
      say(error.message);
    }
    part("panels").setAttribute("aria-busy", "false");
  }
  showPlaces();
}

function build(found) {
  panels = found.map(([view, weights], i) => {
    const gold = state.type === "cross" ? view.gold : null;
    const outlined = state.level === "word" ? gold : gold && { ...gold, sure: [], possible: [] };
    return new Panel(view, state.type, weights, outlined, {
      choose: (layer, head) => go({ models: state.models.map((model, j) => (i === j ? { ...model, layer, head } : model)) }),
      point,
      hold,
    });
  });
  part("panels").replaceChildren(...panels.map((panel) => panel.element));
  part("panels").classList.toggle("two", panels.length > 1);
  part("legend").hidden = false;
  part("legend-minus").hidden = !found.some(([, weights]) => weights.level.signed);
  part("legend-forbidden").hidden = !found.some(([, weights]) => weights.level.reach);
  part("legend-gold").hidden = !(state.type === "cross" && state.level === "word" && found.some(([view]) => view.gold));
  const colours = palette();
  for (const panel of panels) panel.heads.draw(colours);
}

function showPlaces() {
  const colours = palette();
  panels.forEach((panel, i) => {
    const { layer, head } = state.models[i];
    panel.show(layer, head, state.figure, state.word, colours);
  });
}

function clear() {
  panels = [];
  drawn = "";
  part("panels").replaceChildren();
  part("legend").hidden = true;
}

/** The pointer or the focus is on a word of one panel; the others follow where they have the same word. */
function point(word, from, cell) {
  const token = word && from.weights.tokens(word.side)[word.index];
  for (const panel of panels) {
    if (!word) panel.highlight(state.word);
    else if (panel === from) panel.highlight(word, cell);
    else panel.highlight(panel.has(word, token) ? word : null);
  }
}

function hold(word) {
  const same = state.word?.side === word.side && state.word?.index === word.index;
  go({ word: same ? null : word });
}

function say(text) {
  part("message").textContent = text;
  part("message").hidden = !text;
}

/** A row of radio buttons that look like one switch. */
function segments(id, options, change) {
  for (const [value, text] of Object.entries(options)) {
    const label = make("label", {});
    const radio = make("input", { type: "radio", name: id, value });
    radio.addEventListener("change", () => change(value));
    label.append(radio, make("span", { textContent: text }));
    part(id).append(label);
  }
}

function option(value, text) {
  return make("option", { value, textContent: text });
}

/** What does not change while the page is open. */
function makeControls() {
  // Another type has other heads: -1 stands for the one to begin with. Another level has other words.
  segments("type", TYPES, (type) => go({ type, word: null, models: state.models.map(({ name }) => ({ name, layer: -1, head: -1 })) }));
  segments("level", LEVELS, (level) => go({ level, word: null }));
  for (const model of start.models) part("model").append(option(model.name, model.name));
  part("model-choice").hidden = start.models.length < 2;
  part("beside-choice").hidden = start.models.length < 2;
  part("controls").hidden = false;
  part("figure").addEventListener("change", (event) => go({ figure: event.target.value }, true));
  part("model").addEventListener("change", chooseModels);
  part("beside").addEventListener("change", chooseModels);
  if (saved) return;
  part("ask").hidden = part("export").hidden = false;
  part("example").append(option("", start.examples.length ? "choose a sentence pair" : "none"));
  start.examples.forEach(({ source }, i) => part("example").append(option(i, shown(source).slice(0, 80))));
  part("source").maxLength = part("target").maxLength = start.limits.characters;
  part("example").addEventListener("change", (event) => {
    const example = start.examples[event.target.value];
    if (example) go({ source: example.source, target: example.target, word: null });
  });
  part("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    go({ source: part("source").value, target: part("target").value.trim() ? part("target").value : "", word: null });
  });
  for (const id of ["source", "target"])
    part(id).addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        part("ask").requestSubmit();
      }
    });
  part("export").addEventListener("click", saveFile);
}

function chooseModels() {
  const names = [part("model").value, part("beside").value].filter((name, i, all) => name && all.indexOf(name) === i);
  const places = new Map(state.models.map((model) => [model.name, model]));
  go({ models: names.map((name) => places.get(name) ?? { name, layer: -1, head: -1 }) });
}

/** What the state says, in the form and the switches. */
function fillControls() {
  for (const id of ["type", "level"])
    for (const radio of part(id).querySelectorAll("input")) radio.checked = radio.value === state[id];
  const sink = state.type === "decoder" ? "<s>" : "</s>";
  part("figure").replaceChildren(...Object.entries(FIGURES)
    .filter(([name]) => name !== "aer" || state.type === "cross")
    .map(([name, text]) => option(name, name === "sink" ? `share on ${sink}` : text)));
  part("figure").value = state.figure;
  const [first, second] = state.models.map(({ name }) => name);
  part("model").value = first;
  part("beside").replaceChildren(option("", "no other"), ...start.models
    .filter(({ name }) => name !== first).map(({ name }) => option(name, name)));
  part("beside").value = second ?? "";
  const text = JSON.stringify([state.source, state.target]);
  if (saved || text === filled) return; // what someone is typing stays
  filled = text;
  part("source").value = state.source;
  part("target").value = state.target;
  const example = start.examples.findIndex(({ source, target }) => source === state.source && target === state.target);
  part("example").value = example < 0 ? "" : example;
}

async function saveFile() {
  try {
    const body = { models: state.models.map(({ name }) => name), source: state.source, target: state.target || null };
    const file = await (await ask("api/export", body)).blob();
    const link = make("a", { href: URL.createObjectURL(file), download: "attention.html" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  } catch (error) {
    say(error.message);
  }
}

function redraw() {
  const colours = palette();
  for (const panel of panels) {
    panel.draw(colours);
    panel.highlight(state.word);
  }
}

async function open() {
  try {
    start = saved ? saved.start : await (await ask("api/start")).json();
  } catch (error) {
    return say(error.message);
  }
  makeControls();
  window.addEventListener("hashchange", render);
  window.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.word) go({ word: null });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = window.innerWidth;
  let waiting;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 100);
  });
  state = readState(start, location.hash);
  if (!saved && !state.source && start.examples.length) {
    const { source, target } = start.examples[0];
    return go({ source, target }, true);
  }
  render();
}

open();
