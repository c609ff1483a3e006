"use strict";
book.figure({
  id: "loop",
  number: 26,
  title: "The loop, line by line",
  controls: [book.steps("at", "Part", 1, 9, 5)],

  /* What each line begins with, what it does, and the figures that explain it: [id, number, section, what it shows]. */
  steps: [
    {
      line: "cache = None",
      says: "Before the first pass there is no cache. That is not the same as a cache that is there and empty",
      see: [["slots", 18, 5, "the cache’s slots"]],
    },
    {
      line: "while",
      says: "The loop runs as long as the text is shorter than it may become. Each turn adds one token",
      see: [["autoregression", 14, 4, "what each step reads"]],
    },
    {
      line: "new =",
      says: "The first pass is fed the whole prompt, each later one only the newest token. The question is whether there is a " +
        "cache: “if cache” would ask whether it holds anything, and an empty one holds nothing",
      see: [["naive-or-cached", 15, 4, "which positions are computed"]],
    },
    {
      line: "if cache is None",
      says: "Room for keys and values is made once, for as many positions as the model has",
      see: [
        ["context", 19, 5, "its bytes"],
        ["ring", 20, 5, "when room runs out"],
      ],
    },
    {
      line: "logits =",
      says: "One forward pass. It reads all weights, takes its positions from the cache's length, writes the new pairs " +
        "and reads the old ones",
      see: [
        ["stages", 2, 1, "the stages"],
        ["block", 5, 2, "a block"],
        ["position", 21, 5, "the positions"],
        ["intensity", 22, 6, "FLOPs a byte"],
      ],
    },
    {
      line: "scores =",
      says: "Of all positions that were fed only the last one's scores are used: one number for each token of the vocabulary",
      see: [["logits", 9, 3, "raw scores"]],
    },
    {
      line: "id =",
      says: "Scores become probabilities, the tail is cut, and one token is chosen",
      see: [
        ["temperature", 10, 3, "temperature"],
        ["top-k", 11, 3, "top-k"],
        ["top-p", 12, 3, "top-p"],
        ["greedy", 13, 3, "always the best"],
      ],
    },
    {
      line: "text =",
      says: "The chosen token is appended to the text. The cache does not hold it yet",
      see: [["slots", 18, 5, "the cache’s slots"]],
    },
    {
      line: "if id.item()",
      says: "A token that ends the text opens the loop. Otherwise the next turn is fed what this one has chosen",
      see: [["closed-loop", 28, 7, "the loop, closed"]],
    },
  ],

  numbers({ at }) {
    const starts = this.steps.map(({ line }) => book.data.loop.findIndex((code) => code.trim().startsWith(line)));
    if (starts.some((start) => start < 0)) throw new Error("figure loop explains a line that the code does not have");
    const end = at < starts.length ? starts[at] : book.data.loop.length;
    const { see } = this.steps[at - 1];
    const [figures, sections] = [see.map(([, number]) => number), see.map(([, , section]) => section)];
    return { at, last: starts.length, from: starts[at - 1], end, figures, sections };
  },

  shown: (n) => ({
    at: String(n.at),
    last: String(n.last),
    ...Object.fromEntries(n.figures.map((number, i) => [`figure${i}`, String(number)])),
    ...Object.fromEntries(n.sections.map((section, i) => [`section${i}`, String(section)])),
  }),

  draw(n) {
    const lines = book.data.loop.map((code, i) => {
      const lit = i >= n.from && i < n.end;
      const indent = code.length - code.trimStart().length;
      const place = `padding-left: ${indent / 4 + 1}em; text-indent: -1em`; // what does not fit goes on a little further in
      const mark = `<td>${lit ? "▸" : "&#160;"}</td>`;
      return `<tr${lit ? ' class="lit"' : ""}>${mark}<td style="${place}"><code>${book.escape(code.trim())}</code></td></tr>`;
    });
    const links = this.steps[n.at - 1].see.map(
      ([id, , , what], i) => `<li><a href="#figure-${id}">Figure {figure${i}}, ${what}</a> (section {section${i}})</li>`,
    );
    return `<table class="code"><tbody>${lines.join("")}</tbody></table><div>Explained in</div><ul>${links.join("")}</ul>`;
  },

  words(n) {
    return `Part {at} of {last}. ${this.steps[n.at - 1].says}.`;
  },
});
