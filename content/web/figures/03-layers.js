"use strict";
book.figure({
  id: "layers",
  number: 3,
  title: "How the number of parameters grows with the layers",
  controls: [book.range("layers", "Layers", 1, 48, 12)],

  numbers({ layers }) {
    const { n_embd: d, vocab_size: V, n_positions: P } = book.data.gpt2;
    const block = 12 * d * d + 13 * d; // four matrices with their biases, two norms
    const outside = V * d + P * d + 2 * d; // token table, position table, final norm
    return { layers, block, outside, total: layers * block + outside };
  },

  shown: (n) => ({ layers: book.int(n.layers), block: book.int(n.block), outside: book.int(n.outside), total: book.int(n.total) }),

  draw(n) {
    const [left, right, bottom, top] = [44, 384, 200, 24];
    const most = 48 * n.block + n.outside;
    const x = (layers) => left + ((right - left) * layers) / 48;
    const y = (parameters) => bottom - ((bottom - top) * parameters) / most;
    return book.svg(
      236,
      "A straight line of parameters over layers, with a point at the chosen depth",
      book.line(left, bottom, right, bottom, "axis"),
      book.line(left, bottom, left, top, "axis"),
      book.path(`M${x(0)} ${y(n.outside)}L${x(48)} ${y(most)}`, "c1 line"),
      book.line(x(n.layers), bottom, x(n.layers), y(n.total), "c2 line dashed"),
      book.circle(x(n.layers), y(n.total), 6, "c2"),
      book.text(Math.min(300, Math.max(100, x(n.layers))), y(n.total) - 12, "{total}", "middle", "strong"),
      book.text((left + right) / 2, 228, "layers: {layers}", "middle"),
    );
  },

  words: () =>
    "With {layers} layers the model has {total} parameters: {block} for each layer, and {outside} outside the layers. The line is straight, because all layers are of one size.",
});
