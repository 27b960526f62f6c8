// The page: every change is a new address, and every address is drawn the same way, whoever wrote it.
"use strict";

const part = (id) => document.getElementById(id);
const saved = part("saved").textContent ? JSON.parse(part("saved").textContent) : null;
const views = new Map(); // what the server has answered, by question
const MOST_VIEWS = 12;
let start; // models, examples, limits
let examples = null; // those of the model that is shown
let state;
let panels = [];
let hasGold = false; // whether an alignment error rate can be shown
let drawn = ""; // the question the panels answer
let filled = null; // the text that was last put into the form
let turn = 0; // of rendering; an answer to an older one is dropped

/** Go to a changed state: a new entry in the history, which draws it. */
function go(changes, replace = false) {
  const address = addressOf(start, readState(start, addressOf(start, { ...state, ...changes })));
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

/** One model's view of a text: from the file, from memory or from the server. */
async function viewOf({ name, off }, source, target) {
  if (saved) return saved.views.find((view) => view.model === name);
  const question = JSON.stringify([name, source, target, off]);
  if (!views.has(question)) {
    const view = await (await ask("api/view", { model: name, source, target: target || null, off })).json();
    views.set(question, view);
    if (views.size > MOST_VIEWS) views.delete(views.keys().next().value);
  }
  return views.get(question);
}

/** What the target was before it was exchanged for another sentence's, or null. */
async function beforeOf(model) {
  if (saved) return saved.before.find((view) => view.model === model.name) ?? null;
  return state.before === null ? null : viewOf(model, state.source, state.before);
}

async function render() {
  const mine = ++turn;
  state = readState(start, location.hash);
  fillControls();
  say(state.unknown.length ? `There is no model called ${state.unknown.map(shown).join(", ")} here.` : "");
  if (!state.source && !saved) return clear();
  const question = JSON.stringify([state.source, state.target, state.before, state.type, state.level,
    state.models.map(({ name, off }) => [name, off])]);
  if (question !== drawn) {
    part("panels").setAttribute("aria-busy", "true");
    try {
      const found = await Promise.all(state.models.map(async (model) => {
        const view = await viewOf(model, state.source, state.target);
        return [view, await unpack(view, state.type, state.level), await beforeOf(model)];
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
  const aligned = WITH_AER.includes(state.type);
  panels = found.map(([view, weights, before], i) => {
    const gold = aligned ? view.gold : null;
    const outlined = state.level === "word" ? gold : gold && { ...gold, sure: [], possible: [] };
    const change = (changes) => go({ models: state.models.map((model, j) => (i === j ? { ...model, ...changes } : model)) });
    return new Panel(view, state.type, state.level, weights, outlined, before, {
      choose: (layer, head) => change({ layer, head }),
      toggle: saved ? null : (layer, head) => change({ off: toggled(state.models[i].off, weights, layer, head) }),
      allOn: saved ? null : () => change({ off: [] }),
      point,
      hold,
    });
  });
  for (const one of panels)
    one.matrix.scroller.addEventListener("scroll", () => {
      for (const other of panels) if (other !== one) other.matrix.follow(one.matrix.scroller);
    });
  hasGold = aligned && found.some(([view]) => view.gold);
  part("panels").replaceChildren(...panels.map((panel) => panel.element));
  part("panels").classList.toggle("two", panels.length > 1);
  part("legend").hidden = false;
  part("legend-minus").hidden = !found.some(([, weights]) => weights.level.signed);
  part("legend-forbidden").hidden = !found.some(([, weights]) => weights.level.reach);
  part("legend-gold").hidden = !(hasGold && state.level === "word");
  const colours = palette();
  for (const panel of panels) panel.heads.draw(colours);
}

/** The heads that are off after one, or all of a layer, were switched. */
function toggled(off, weights, layer, head) {
  const type = weights.type === "shifted" ? "cross" : weights.type;
  const all = Array.from({ length: weights.heads }, (_, one) => [type, layer, one]);
  const heads = head < weights.heads ? [all[head]] : all;
  const is = (one) => off.some((other) => String(other) === String(one));
  const others = off.filter((one) => !heads.some((switched) => String(switched) === String(one)));
  return heads.every(is) ? others : [...others, ...heads];
}

function showPlaces() {
  const colours = palette();
  fillFigures();
  panels.forEach((panel, i) => {
    const { layer, head } = state.models[i];
    panel.show(layer, head, panel.view.gold || state.figure !== "aer" ? state.figure : "null_rate", state.word, colours);
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

/** What does not change while the page is open. */
function makeControls() {
  // Another type has other heads: -1 stands for the one to begin with. Another level has other words.
  segments("type", TYPES, (type) => go({ type, word: null, models: state.models.map((model) => ({ ...model, layer: -1, head: -1 })) }));
  segments("level", LEVELS, (level) => go({ level, word: null }));
  const several = start.models.some((model) => !sameLanguages(model, start.models[0]));
  for (const { name, languages } of start.models)
    part("model").append(option(name, several ? `${name} (${languages.join(" to ")})` : name));
  part("model-choice").hidden = start.models.length < 2;
  part("controls").hidden = false;
  part("figure").addEventListener("change", (event) => go({ figure: event.target.value }, true));
  part("model").addEventListener("change", chooseModels);
  part("beside").addEventListener("change", chooseModels);
  if (saved) return;
  part("ask").hidden = part("export").hidden = false;
  part("source").maxLength = part("target").maxLength = start.limits.characters;
  part("example").addEventListener("change", (event) => {
    const example = examples[event.target.value];
    if (example) goText(example.source, example.target);
  });
  part("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const target = event.submitter === part("pair") ? part("target").value : "";
    goText(part("source").value, target.trim() ? target : "");
  });
  // Enter in the source translates it; Enter in the target shows the pair.
  for (const [id, button] of [["source", "translate"], ["target", "pair"]])
    part(id).addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        part("ask").requestSubmit(part(button));
      }
    });
  part("swap").addEventListener("click", () => {
    const target = anotherTarget(examples, state.source, state.target);
    if (target) go({ target, before: state.before ?? state.target, word: null, guide: null });
  });
  part("export").addEventListener("click", saveFile);
}

/** Show a text; without a target each model translates. What was typed is taken, even if it is shown already. */
function goText(source, target) {
  filled = null;
  go({ source, target, before: null, word: null, guide: null });
}

/** Parts that are open where there is room, and that a phone's user opens. */
function foldParts() {
  const narrow = matchMedia("(max-width: 40rem)");
  const fold = () => {
    for (const one of document.querySelectorAll("details.fold")) one.open = !narrow.matches;
  };
  narrow.addEventListener("change", fold);
  fold();
}

function chooseModels() {
  const names = [part("model").value, part("beside").value].filter((name, i, all) => name && all.indexOf(name) === i);
  const places = new Map(state.models.map((model) => [model.name, model]));
  const known = (name) => start.models.find((model) => model.name === name);
  const [first, before] = [known(names[0]), known(state.models[0].name)];
  const models = names.filter((name) => sameLanguages(known(name), first))
    .map((name) => places.get(name) ?? { name, layer: -1, head: -1, off: [] });
  const target = state.target || panels[0]?.view.target;
  // A model of the other direction reads the pair turned round.
  if (isTurned(first, before) && target)
    return go({ models, source: target, target: state.source, before: null, word: null, guide: null });
  go({ models });
}

/** What the state says, in the form and the switches. */
function fillControls() {
  for (const id of ["type", "level"])
    for (const radio of part(id).querySelectorAll("input")) radio.checked = radio.value === state[id];
  part("type-help").textContent = TYPE_HELP[state.type];
  showGuide(part("guide"), start, saved ? null : state.guide, goGuide);
  const [first, second] = state.models.map(({ name }) => name);
  part("model").value = first;
  const shownModel = start.models.find(({ name }) => name === first);
  const others = start.models.filter((model) => model.name !== first && sameLanguages(model, shownModel));
  part("beside-choice").hidden = !others.length;
  part("beside").replaceChildren(option("", "no other"), ...others.map(({ name }) => option(name, name)));
  part("beside").value = second ?? "";
  if (!saved) fillExamples(first);
  const text = JSON.stringify([state.source, state.target]);
  if (saved || text === filled) return; // what someone is typing stays
  filled = text;
  part("source").value = state.source;
  part("target").value = state.target;
  const example = examples.findIndex(({ source, target }) => source === state.source && target === state.target);
  part("example").value = example < 0 ? "" : example;
}

/** The sentence pairs to choose from, in the languages of the model of this name. */
function fillExamples(name) {
  const found = examplesFor(start, name);
  if (examples && String(found[0]?.source) === String(examples[0]?.source)) return;
  examples = found;
  part("example").replaceChildren(option("", examples.length ? "choose a sentence pair" : "none"),
    ...examples.map(({ source }, i) => option(i, shown(source).slice(0, 80))));
  part("swap").hidden = examples.length < 2;
}

/** The figures that can stand under a head; an alignment error rate needs gold links. */
function fillFigures() {
  const sink = state.type === "decoder" ? "<s>" : "</s>";
  part("figure").replaceChildren(...Object.entries(FIGURES)
    .filter(([name]) => name !== "aer" || hasGold)
    .map(([name, text]) => option(name, name === "sink" ? `share on ${sink}` : text)));
  part("figure").value = hasGold || state.figure !== "aer" ? state.figure : "null_rate";
}

function goGuide(changes, step) {
  go(changes);
  if (step === "own") part("source").select();
}

async function saveFile() {
  try {
    const body = {
      models: state.models.map(({ name }) => name), off: state.models.map(({ off }) => off),
      source: state.source, target: state.target || null, before: state.before, address: location.hash,
    };
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
  fillTerms(part("terms"));
  foldParts();
  window.addEventListener("hashchange", render);
  window.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.word) go({ word: null });
  });
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
    matchMedia(query).addEventListener("change", redraw);
  let width = window.innerWidth;
  let waiting;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 100);
  });
  if (saved && !location.hash && saved.address.startsWith("#")) return location.replace(saved.address); // draws it
  state = readState(start, location.hash);
  if (!saved && !state.source && start.guide) return go(guideState(start, "nothing"), true);
  if (!saved && !state.source && start.examples.length) {
    const { source, target } = start.examples[0];
    return go({ source, target }, true);
  }
  render();
}

open();
