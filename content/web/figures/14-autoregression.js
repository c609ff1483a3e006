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
    const cell = (token, kind, label) => `<li class="cell ${kind}">${book.escape(book.visible(token))}${label}</li>`;
    const read = [...prompt.map((token) => cell(token, "done", "")), ...made.slice(0, n.settled).map((token) => cell(token, "c3", ""))];
    const settled = n.settled ? ", and {settled} that earlier steps chose (green, outlined)" : "";
    return (
      `<p class="small">Step {step} of {last} reads {read} tokens: the prompt’s {prompt} (grey)${settled}</p>` +
      `<ol class="cells">${read.join("")}</ol>` +
      `<p class="small">one forward pass ↓ the scores of the last position ↓ one token chosen</p>` +
      `<ol class="cells">${cell(made[n.settled], "lit strong", "")}</ol>`
    );
  },

  words(n) {
    const token = `“${book.escape(book.visible(book.data.passage.made[n.settled]))}”`;
    const rest = n.settled ? `the {prompt} of the prompt and the {settled} settled before` : "those of the prompt";
    return `Step {step} reads {read} tokens, ${rest}, and chooses ${token}. At the next step that token is part of what is read.`;
  },
});
