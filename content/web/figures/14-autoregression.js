"use strict";
book.figure({
  id: "autoregression",
  number: 14,
  title: "What each step reads: the prompt, and what earlier steps chose",
  controls: [book.steps("step", "Step", 1, 8, 4)],

  numbers({ step }) {
    const { prompt, made } = book.data.passage;
    return { step, prompt: prompt.length, settled: step - 1, read: prompt.length + step - 1, last: made.length };
  },

  shown: (n) => Object.fromEntries(Object.entries(n).map(([key, value]) => [key, book.int(value)])),

  draw(n) {
    const { prompt, made } = book.data.passage;
    const cell = (token, kind) => `<li class="cell ${kind}">${book.escape(book.visible(token))}</li>`;
    const row = (label, cells) => `<p class="small">${label}</p><ol class="cells">${cells.join("")}</ol>`;
    const settled = made.slice(0, n.settled).map((token) => cell(token, "c3"));
    const rows = [
      row("The prompt, given: {prompt} tokens", prompt.map((token) => cell(token, "done"))),
      n.settled ? row("Settled, chosen by earlier steps: {settled}", settled) : "",
      row("↓ one forward pass over all {read}, then one choice", [cell(made[n.settled], "lit strong")]),
    ];
    return `<p class="strong">Step {step} of {last}</p>${rows.join("")}`;
  },

  words(n) {
    const token = `“${book.escape(book.visible(book.data.passage.made[n.settled]))}”`;
    const rest = n.settled ? `the {prompt} of the prompt and the {settled} settled before` : "those of the prompt";
    const next = "At the next step that token is part of what is read.";
    const end = n.step === n.last ? "No step follows, so nothing reads that token." : next;
    return `Step {step} reads {read} tokens, ${rest}, and chooses ${token}. ${end}`;
  },
});
