// What changes when heads are switched off, or when a sentence gets another sentence's target.
"use strict";

/** The words of `after`, each with whether it stands, in this order, in `before` too (longest common subsequence). */
function compareWords(before, after) {
  const [old, now] = [before.split(/\s+/), after.split(/\s+/)];
  const length = Array.from({ length: old.length + 1 }, () => new Array(now.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = now.length - 1; j >= 0; j--)
      length[i][j] = old[i] === now[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const found = [];
  for (let i = 0, j = 0; j < now.length; ) {
    if (i < old.length && old[i] === now[j]) {
      found.push([now[j++], true]);
      i++;
    } else if (i < old.length && length[i + 1][j] >= length[i][j + 1]) i++;
    else found.push([now[j++], false]);
  }
  return found;
}

/** A translation with the words marked that the other does not have. */
function markedWords(name, text, other) {
  const line = make("p", { className: "compared", dir: "auto" }, make("span", { className: "compared-name", textContent: name }));
  for (const [word, same] of compareWords(other, text))
    line.append(make(same ? "span" : "mark", { textContent: shown(word) }), " ");
  return line;
}

/** "cross layer 2 head 1, head 2; encoder layer 1 head 4" of heads that are off. */
function offNames(off) {
  const layers = new Map();
  for (const [type, layer, head] of [...off].sort()) {
    const name = `${type} layer ${layer + 1}`;
    layers.set(name, [...(layers.get(name) ?? []), head + 1]);
  }
  return [...layers].map(([name, heads]) => `${name} head${heads.length > 1 ? "s" : ""} ${heads.join(", ")}`).join("; ");
}

/** What the heads that are off change: both translations, and how probable the target shown is. */
function showAblation(view, allOn) {
  const { off, translation, translation_before: before, log_prob_before: probable } = view.ablation;
  const box = make("div", { className: "change" });
  const head = make("p", {}, make("strong", { textContent: "Switched off: " }), offNames(off), " ");
  if (allOn) {
    const button = make("button", { type: "button", className: "small", textContent: "Switch all on" });
    button.addEventListener("click", allOn);
    head.append(button);
  }
  box.append(head);
  if (translation === before) box.append(make("p", { textContent: "The model’s own translation stays the same." }));
  else box.append(markedWords("all heads", before, translation), markedWords("without", translation, before));
  box.append(make("p", { className: "about", textContent:
    `log-probability of the target shown: ${minus(probable)} with all heads, ${minus(view.log_prob)} without these` }));
  return box;
}

/** Null rows with the target before and with this one, as two bars with their figures. */
function showSwap(view, before) {
  const box = make("div", { className: "change" });
  box.append(make("p", {}, make("strong", { textContent: "Another sentence’s target. " }),
    "Null rows of cross attention, mean of all heads:"));
  const rates = [before.null_rate, view.null_rate];
  const largest = Math.max(...rates, 0.25);
  [[before.forced ? "target before" : "own translation", rates[0], before], ["this target", rates[1], view]].forEach(([name, rate, one]) => {
    const bar = make("span", { className: "bar" }, make("i"));
    bar.firstChild.style.width = `${(100 * rate / largest).toFixed(1)}%`;
    box.append(make("p", { className: "compared" }, make("span", { className: "compared-name", textContent: name }), bar,
      `${percent(rate)}, log-probability ${minus(one.log_prob)} `,
      make("span", { className: "about", dir: "auto", textContent: shown(one.target) })));
  });
  if (!rates[0] && !rates[1])
    box.append(make("p", { className: "about", textContent: "No null rows: here every word must look somewhere, whatever it is given." }));
  return box;
}

/** What the model has no subword for, or nothing. */
function showUnknown(view) {
  const said = Object.entries(view.unknown)
    .filter(([, pieces]) => pieces.length)
    .map(([side, pieces]) => `${pieces.map(quoted).join(", ")} in the ${side}`);
  if (!said.length) return [];
  return [make("p", { className: "note", textContent: `The model does not know ${said.join(" and ")}: it reads <unk> there.` })];
}
