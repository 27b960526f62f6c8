// One sentence for each term of the page, shown where someone asks for it, and all of them at the end.
"use strict";

const TERMS = {
  "null rate": "The share of words that look at nothing at all: every weight of their row is exactly 0.",
  sparsity: "The share of weights that are exactly 0.",
  "</s>": "The end of a sentence, read and written like a word; a head that has nowhere to look often looks there.",
  "<s>": "The beginning of a sentence: what the decoder reads before it has written a word.",
  "largest weight": "What the darkest colour stands for; rows of ReLA do not sum to one, so it may be above 1.",
  AER: "Alignment error rate: how far the head’s links are from the gold links; at 0 % no link is wrong or missing, at 100 % no link is right.",
  shifted: "A decoder step reads one word and writes the next: shifted attention gives a word the row of the step that reads it.",
  "log-probability": "How sure the model is of a word after those before it: 0 is certain, −2.3 one in ten, −4.6 one in a hundred.",
  "layer attention": "The mean of the weights of all heads of a layer.",
  subword: "A piece of a word: the model reads and writes pieces, and a rare word has several.",
  "gold link": "Two words that a person, or the grammar of the embedded corpus, says are translations of each other.",
};

const TYPE_HELP = {
  cross: "Cross attention: while it writes a target word, the model looks at the words of the source.",
  shifted: `Cross attention, shifted. ${TERMS.shifted}`,
  encoder: "Encoder attention: each source word looks at all source words.",
  decoder: "Decoder attention: each target word looks at the words before it.",
};

/** The term that a figure's name stands for: "on </s>" is about </s>, "AER, shifted" about shifted. */
const termOf = (name) => Object.keys(TERMS).find((term) => name.endsWith(term)) ?? name;

/** A name that says what it means when it is pressed; `line` is where. */
function askable(name, line) {
  const term = termOf(name);
  if (!TERMS[term]) return document.createTextNode(name);
  const button = make("button", { type: "button", className: "term", textContent: name, title: TERMS[term] });
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "false";
    for (const other of line.parentElement.querySelectorAll(".term")) other.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-expanded", open);
    line.textContent = open ? `${term}: ${TERMS[term]}` : "";
    line.hidden = !open;
  });
  return button;
}

/** All terms, as a list. */
function fillTerms(list) {
  for (const [term, meaning] of Object.entries(TERMS))
    list.append(make("div", {}, make("dt", { textContent: term }), make("dd", { textContent: meaning })));
}
