"use strict";
book.figure({
  id: "layers",
  number: 3,
  title: "How the number of parameters grows with the layers",
  controls: [book.range("layers", "Layers", 1, 48, 12)],

  numbers({ layers }) {
    const { n_embd: d, n_layer: own, vocab_size: V, n_positions: P } = book.data.gpt2;
    const block = 12 * d * d + 13 * d; // four matrices with their biases, two norms
    const outside = V * d + P * d + 2 * d; // token table, position table, final norm
    const total = layers * block + outside;
    return { layers, own, block, outside, inside: layers * block, total, ratio: total / (own * block + outside) };
  },

  shown: (n) => ({
    ...Object.fromEntries(["layers", "own", "block", "outside", "inside", "total"].map((key) => [key, book.int(n[key])])),
    ratio: book.fixed(n.ratio, 2),
  }),

  draw(n) {
    const [left, right, bottom, top] = [48, 384, 236, 44];
    const x = (layers) => left + ((right - left) * layers) / 48;
    const y = (parameters) => bottom - ((bottom - top) * parameters) / 4e8;
    const across = [12, 24, 36, 48].map((mark) => [
      book.line(x(mark), bottom, x(mark), bottom + 5, "axis"),
      book.text(x(mark), bottom + 20, String(mark), "middle"),
    ]);
    const up = [100, 200, 300, 400].map((mark) => [
      book.line(left - 5, y(1e6 * mark), left, y(1e6 * mark), "axis"),
      book.text(left - 9, y(1e6 * mark) + 5, String(mark), "end"),
    ]);
    const at = x(n.layers);
    return book.svg(
      278,
      "A straight line of parameters over layers that starts above zero, with a bar at the chosen depth in two parts",
      book.text(2, 16, "parameters, millions", "start", "small"),
      book.line(left, bottom, right, bottom, "axis"),
      book.line(left, bottom, left, top - 6, "axis"),
      across,
      up,
      book.line(left, y(n.outside), right, y(n.outside), "c5 line dashed"),
      book.path(`M${x(0)} ${y(n.outside)}L${x(48)} ${y(48 * n.block + n.outside)}`, "c1 line"),
      book.rect(at - 5, y(n.outside), 10, bottom - y(n.outside), "c5 box soft"),
      book.rect(at - 5, y(n.total), 10, y(n.outside) - y(n.total), "c1 box soft"),
      book.circle(at, y(n.total), 6, "c2"),
      book.text(left + 14, top + 12, `{layers} ${n.layers === 1 ? "layer" : "layers"}: {total}`, "start", "strong"),
      book.text(n.layers > 30 ? left + 8 : right, bottom - 5, "outside the layers", n.layers > 30 ? "start" : "end"),
      book.text((left + right) / 2, 274, "layers", "middle"),
    );
  },

  words(n) {
    const own = "This is GPT-2 small as it was published.";
    const compared = n.layers === n.own ? own : "That is {ratio} times the model of {own} layers, GPT-2 small.";
    const many = n.layers === 1 ? "{layers} layer has {inside}" : "{layers} layers have {inside}, at {block} each";
    return `The model has {total} parameters: the ${many}, and outside the layers there are {outside}. ${compared}`;
  },
});
