"use strict";
{
  const STEPS = [
    ["Norm", "a copy of the stream is normalised, at each position by itself; the stream itself is not touched"],
    ["Attention", "each position reads the normalised copies of itself and of the positions before it"],
    ["Add", "what attention made is added to the stream, so that all that stood there is still in the sum"],
    ["Norm", "a copy of the stream, with attention’s part now in it, is normalised at each position by itself"],
    ["Feed-forward", "each position’s copy goes through two matrices, of {width} to {inner} and back, with no look at others"],
    ["Add", "what the feed-forward network made is added to the stream, and the next block begins"],
  ];

  book.figure({
    id: "block",
    number: 5,
    title: "The six steps of a block",
    controls: [book.steps("step", "Step", 1, STEPS.length, 1)],

    numbers({ step }) {
      const { n_embd: d } = book.data.gpt2;
      const [norm, attention, forward] = [2 * d, 4 * d * d + 4 * d, 8 * d * d + 5 * d];
      const parameters = [norm, attention, 0, norm, forward, 0];
      return { step, width: d, inner: 4 * d, parameters, here: parameters[step - 1], all: 2 * norm + attention + forward };
    },

    shown: (n) => ({
      step: String(n.step),
      width: book.int(n.width),
      inner: book.int(n.inner),
      here: book.int(n.here),
      all: book.int(n.all),
      ...Object.fromEntries(n.parameters.flatMap((count, i) => (count ? [[`part${i}`, book.int(count)]] : []))),
    }),

    draw(n) {
      const [stream, left, wide] = [64, 136, 130];
      const kind = (step) => (step === n.step ? "lit" : step < n.step ? "done" : "box");
      const arm = (...steps) => (steps.includes(n.step) ? "c2 line strong" : "line");
      const box = (step, y) => [
        book.rect(left, y, wide, 34, kind(step), { rx: 5 }),
        book.text(left + wide / 2, y + 22, STEPS[step - 1][0], "middle", step === n.step ? "strong" : ""),
        book.text(left + wide + 12, y + 22, `{part${step - 1}}`),
      ];
      const branch = (first, y) => [
        book.arrow(stream, y + 17, left - 3, y + 17, arm(first)),
        box(first, y),
        book.arrow(left + wide / 2, y + 34, left + wide / 2, y + 59, arm(first + 1)),
        box(first + 1, y + 62),
        book.arrow(left, y + 79, stream + 17, y + 79, arm(first + 2)),
        book.circle(stream, y + 17, 4, "c1"),
        book.circle(stream, y + 79, 14, kind(first + 2)),
        book.text(stream, y + 85, "+", "middle", "strong"),
      ];
      return book.svg(
        312,
        "The stream is a straight line from top to bottom; two branches leave it, and each comes back to a plus sign on it",
        book.text(stream, 16, "stream in", "middle"),
        book.text(left + wide + 12, 16, "parameters"),
        book.arrow(stream, 24, stream, 290, "c1 line strong"),
        branch(1, 44),
        branch(4, 168),
        book.text(stream, 308, "stream out", "middle"),
      );
    },

    words(n) {
      const [name, what] = STEPS[n.step - 1];
      const cost = n.here ? "has {here} of a block’s {all} parameters" : "has no parameters at all; the block has {all}";
      return `Step {step}, ${name.toLowerCase()}: ${what}. In GPT-2 small this step ${cost}.`;
    },
  });
}
