// What to look at first: a few steps, each a state of the page and a sentence that says what to see.
"use strict";

const GUIDE = {
  nothing: {
    name: "A word without a counterpart",
    text: "“ja” has no English word. ReLA can look at nothing there (∅, a hatched row); softmax must look somewhere.",
  },
  swap: {
    name: "Another sentence’s target",
    text: "This target is no translation of the source. Compare the null rows: ReLA leaves more of them empty now, softmax cannot. That is how bad pairs are found in a corpus.",
  },
  off: {
    name: "Heads switched off",
    text: "Every head of each model’s best layer is switched off: read how its translation changes. Choose a head and switch it on again.",
  },
  own: {
    name: "Your own sentence",
    text: "Type a sentence as source and press Enter: each model translates it. Then point at its words.",
  },
};

/** The state of a step, as changes to one that shows the models in their best heads. */
function guideState(start, step) {
  const { source, target, word } = start.guide;
  const models = firstModels(start).map((model) => {
    const { layer, head } = place(model, "cross");
    const off = step === "off" ? Array.from({ length: model.heads }, (_, one) => ["cross", layer, one]) : [];
    return { name: model.name, layer, head, off };
  });
  const plain = { source, target, before: null, word: null, type: firstType(start), level: "word", models, guide: step };
  if (step === "nothing") return { ...plain, word: { side: "query", index: word } };
  if (step === "swap") return { ...plain, before: target, target: anotherTarget(start.examples, source, target) };
  return { ...plain, target: "" };
}

/** The target of another example: of the one after that whose target is shown. */
function anotherTarget(examples, source, target) {
  const at = examples.findIndex((example) => example.target === target);
  const others = [...examples.slice(at + 1), ...examples.slice(0, at + 1)];
  return others.find((example) => example.source !== source && example.target !== target)?.target ?? null;
}

/** The steps as buttons, the text of the one that is shown, and a way to close it. */
function showGuide(box, start, current, go) {
  box.hidden = !start.guide || !current;
  if (box.hidden) return;
  const steps = make("div", { className: "steps", role: "group" });
  steps.setAttribute("aria-label", "What to see");
  Object.entries(GUIDE).forEach(([step, { name }], i) => {
    const button = make("button", { type: "button", className: "step" }, make("b", { textContent: i + 1 }), name);
    if (step === current) button.setAttribute("aria-current", "step");
    button.addEventListener("click", () => go(guideState(start, step), step));
    steps.append(button);
  });
  const close = make("button", { type: "button", className: "quiet close", textContent: "Close" });
  close.setAttribute("aria-label", "Close the guide");
  close.addEventListener("click", () => go({ guide: null }, null));
  box.replaceChildren(make("div", { className: "guide-head" }, steps, close), make("p", { textContent: GUIDE[current].text }));
}
