"use strict";
book.figure({
  id: "context",
  number: 19,
  title: "What the cache of one text takes in GPT-3’s shape",
  controls: [
    book.range("context", "Tokens in the cache", 64, 2048, 2048, 64, (x) => book.int(x)),
    book.choice(
      "number",
      "Bytes per number",
      [
        [1, "one"],
        [2, "two, as in float16"],
        [4, "four, as in float32"],
      ],
      2,
    ),
  ],

  numbers({ context, number }) {
    const { n_layer: layers, n_embd: width, n_positions: full } = book.data.gpt3;
    const token = book.cacheBytes(book.data.gpt3, 1, number);
    return { context, number, layers, width, full, token, bytes: context * token, quarter: (full / 4) * token };
  },

  shown(n) {
    const gib = (bytes) => book.fixed(bytes / 2 ** 30, 2);
    return {
      context: book.int(n.context),
      gib: gib(n.bytes),
      token_mib: book.fixed(n.token / 2 ** 20, 2),
      number_text: n.number === 1 ? "1 byte" : `${n.number} bytes`,
      layers: String(n.layers),
      width: book.int(n.width),
      ...Object.fromEntries([1, 2, 3, 4].map((i) => [`tokens${i}`, book.int((i * n.full) / 4)])),
      ...Object.fromEntries([1, 2, 3, 4].map((i) => [`gib${i}`, gib(i * n.quarter)])),
    };
  },

  draw(n) {
    const [left, top, pitch, tall] = [8, 56, 28, 34];
    const cells = Array.from({ length: 32 }, (_, i) => {
      const [x, y] = [left + pitch * (i % 8), top + tall * Math.floor(i / 8)];
      return book.rect(x, y, pitch - 4, tall - 8, i * 64 < n.context ? "c1" : "box", { rx: 2 });
    });
    const rows = [1, 2, 3, 4].map((i) => book.text(242, top + tall * i - 15, `{tokens${i}}: {gib${i}} GiB`));
    return book.svg(
      204,
      "A cell for every few tokens, four rows of eight; filled cells are in the cache, and each row is a quarter " +
        "of the full context",
      book.text(left, 26, "{context} tokens take {gib} GiB", "start", "strong"),
      book.text(242, 46, "up to this row", "start", "small"),
      cells,
      rows,
    );
  },

  words: () =>
    "With {context} tokens the cache of one text takes {gib} GiB, {token_mib} MiB for each token: two vectors of {width} " +
      "numbers in each of {layers} layers, {number_text} a number. Each row of the picture is a quarter of the context, and a " +
      "quarter of the bytes.",
});
