"use strict";
book.figure({
  id: "width",
  number: 7,
  title: "How the weights of a block divide, at any width",
  controls: [book.range("width", "Width d", 64, 1600, 768, 64)],

  numbers({ width: d }) {
    const [attention, forward] = [4 * d * d, 8 * d * d];
    const more = { attention: 4 * d, forward: 5 * d, norms: 4 * d }; // biases, and the gains and shifts of two norms
    const all = attention + forward + more.attention + more.forward + more.norms;
    return { d, square: d * d, attention, forward, matrices: attention + forward, more, all };
  },

  shown: (n) => ({
    width: book.int(n.d),
    square: book.int(n.square),
    attention: book.int(n.attention),
    forward: book.int(n.forward),
    matrices: book.int(n.matrices),
    attentionShare: book.fixed((100 * n.attention) / n.matrices, 1),
    forwardShare: book.fixed((100 * n.forward) / n.matrices, 1),
    rest: book.int(n.all - n.matrices),
    all: book.int(n.all),
    attentionWhole: book.fixed((100 * (n.attention + n.more.attention)) / n.all, 2),
    forwardWhole: book.fixed((100 * (n.forward + n.more.forward)) / n.all, 2),
    normsWhole: book.fixed((100 * n.more.norms) / n.all, 2),
  }),

  draw(n) {
    const side = (46 * n.d) / 1600;
    const matrices = (y, colour, borders) => [
      book.rect(6, y, 4 * side, side, `${colour} box soft`),
      [1, 2, 3].map((k) => book.line(6 + k * side, y, 6 + k * side, y + side, `${colour} line ${borders}`)),
    ];
    const label = (y, name, formula, count) => [
      book.text(204, y + 14, name, "start", "strong"),
      book.text(204, y + 36, formula),
      book.text(394, y + 36, count, "end"),
    ];
    const border = 6 + 388 / 3;
    return book.svg(
      250,
      "Twelve squares as wide as the model, four for attention, eight for the feed-forward network; below them a bar of the shares",
      matrices(4, "c1", ""),
      label(4, "attention: q, k, v, o", "4 d²", "{attention}"),
      matrices(74, "c3", "dashed"),
      matrices(78 + side, "c3", "dashed"),
      label(94, "feed-forward: up, down", "8 d²", "{forward}"),
      book.rect(6, 188, 388 / 3, 28, "c1 box soft"),
      book.rect(border, 188, (2 * 388) / 3, 28, "c3 box soft"),
      book.text(6 + 388 / 6, 207, "{attentionShare}%", "middle", "strong"),
      book.text(border + 388 / 3, 207, "{forwardShare}%", "middle", "strong"),
      book.text(6 + 388 / 6, 238, "attention", "middle"),
      book.text(border + 388 / 3, 238, "feed-forward", "middle"),
    );
  },

  words: () =>
    "At width {width}, one square is {square} weights. Attention has four, {attention}, the feed-forward network eight, {forward}." +
    " Of the matrices’ {matrices} weights these are {attentionShare} and {forwardShare} per cent. Biases and norms add {rest}. " +
    "Of all {all}, attention has {attentionWhole} per cent, the feed-forward network {forwardWhole}, the norms {normsWhole}.",
});
