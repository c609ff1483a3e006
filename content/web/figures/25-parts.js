"use strict";
book.figure({
  id: "parts",
  number: 25,
  title: "Where GPT-2’s parameters are",
  controls: [
    book.choice(
      "size",
      "Size",
      [
        ["gpt2", "GPT-2 small"],
        ["gpt2-medium", "GPT-2 medium"],
        ["gpt2-large", "GPT-2 large"],
        ["gpt2-xl", "GPT-2 XL"],
      ],
      "gpt2",
    ),
  ],

  numbers({ size }) {
    const { n_layer: layers } = book.data.family[size];
    const { attention, feed, norms, ...rest } = book.parameters(book.data.family[size]);
    return { layers, attention, feed, norms, ...rest, blocks: attention + feed + norms };
  },

  shown(n) {
    const counted = ["tokens", "positions", "last"];
    const parts = ["blocks", "attention", "feed", ...counted];
    const percent = (part) => book.fixed((100 * n[part]) / n.total, part === "last" ? 4 : 1);
    return {
      layers: String(n.layers),
      total: book.int(n.total),
      ...Object.fromEntries(counted.map((part) => [part, book.int(n[part])])),
      ...Object.fromEntries(parts.map((part) => [`${part}_percent`, percent(part)])),
    };
  },

  draw(n) {
    const [x, wide, top, tall] = [12, 92, 16, 290];
    const height = (parameters) => (tall * parameters) / n.total;
    const at = { tokens: top + tall - height(n.tokens) };
    at.positions = at.tokens - height(n.positions);
    const bottom = at.positions;
    const block = (bottom - top) / n.layers;
    const layers = Array.from({ length: n.layers }, (_, i) => {
      const y = top + block * i;
      const third = (block * n.attention) / (n.attention + n.feed);
      return [
        book.rect(x, y, wide, block - third, "c2 soft"),
        book.rect(x, y + block - third, wide, third, "c2"),
        book.line(x, y, x + wide, y, "axis"),
      ];
    });
    const label = (y, from, ...lines) => [
      book.path(`M${x + wide + 2} ${from.toFixed(1)}L${x + wide + 24} ${y - 5}`, "axis"),
      lines.map(([line, kind], i) => book.text(x + wide + 30, y + 19 * i, line, "start", kind)),
    ];
    const [middle, table] = [(top + bottom) / 2, at.tokens + height(n.tokens) / 2];
    return book.svg(
      328,
      "A column of all parameters: from below the token table, the position table, the blocks in slices, and the final norm",
      layers,
      book.rect(x, at.positions, wide, height(n.positions), "c4"),
      book.rect(x, at.tokens, wide, height(n.tokens), "c1"),
      book.line(x, top, x + wide, top, "line strong"),
      label(21, top, ["final norm: {last_percent} %", "strong"], ["(its line is thicker than to scale)", ""]),
      label(
        Math.min(middle, bottom - 100),
        middle,
        ["{layers} blocks: {blocks_percent} %", "strong"],
        ["attention {attention_percent} % (dark)", ""],
        ["feed-forward {feed_percent} % (pale)", ""],
      ),
      label(Math.min(at.positions - 8, 262), at.positions, ["position table: {positions_percent} %", "strong"]),
      label(Math.min(Math.max(table, 262), 298), table, ["token table: {tokens_percent} %", "strong"]),
    );
  },

  words: () =>
    "Of {total} parameters {blocks_percent} per cent are in the {layers} blocks, most of them in the feed-forward networks. " +
      "Of the rest the token table has {tokens} ({tokens_percent} per cent), the position table {positions} " +
      "({positions_percent} per cent) and the final norm {last}. The logits are made by the token table once more, " +
      "so unembedding has no weights of its own.",
});
