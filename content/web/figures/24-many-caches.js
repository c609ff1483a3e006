"use strict";
book.figure({
  id: "many-caches",
  number: 24,
  title: "Caches of many texts against the weights",
  controls: [book.steps("sequences", "Texts in memory", 1, 48, 36)],

  numbers({ sequences }) {
    const { gpt3 } = book.data;
    const [weights, cache] = [2 * book.parameters(gpt3).total, book.cacheBytes(gpt3, gpt3.n_positions)];
    const fewest = Math.floor(weights / cache) + 1; // whose caches outweigh the weights
    return { sequences, full: gpt3.n_positions, weights, cache, caches: sequences * cache, fewest };
  },

  shown: (n) => ({
    sequences: String(n.sequences),
    full: book.int(n.full),
    weights: book.fixed(n.weights / 2 ** 30, 1),
    cache: book.fixed(n.cache / 2 ** 30, 0),
    caches: book.int(n.caches / 2 ** 30),
    ratio: book.fixed(n.caches / n.weights, 3),
    fewest: String(n.fewest),
  }),

  draw(n) {
    const [left, pitch, tall] = [8, 32, 18];
    const place = (i, top) => [left + pitch * (i % 12), top + tall * Math.floor(i / 12)];
    // so many cells, the last of them a part of one, twelve in a row
    const cells = (count, top, kind) =>
      Array.from({ length: Math.ceil(count) }, (_, i) => {
        const part = Math.min(1, count - i);
        return book.rect(...place(i, top), (pitch - 4) * part, tall - 4, kind, { rx: part < 1 ? 0 : 2 });
      });
    const above = n.caches > n.weights;
    const room = Array.from({ length: 48 }, (_, i) =>
      i < n.sequences ? "" : book.rect(...place(i, 134), pitch - 4, tall - 4, "box dashed", { rx: 2 }),
    );
    return book.svg(
      238,
      "Cells of one size: above, as many as the weights take; below, one for each text’s cache",
      book.text(left, 22, "weights, held once: {weights} GiB", "start", "strong"),
      cells(n.weights / n.cache, 32, "c1"),
      book.text(left, 124, `{sequences} ${n.sequences === 1 ? "cache" : "caches"}: {caches} GiB, ${above ? "more" : "less"}`, "start", "strong"),
      room,
      cells(n.sequences, 134, above ? "c2" : "c3"),
      book.text(left, 228, "one cell: {cache} GiB, the cache of one text"),
    );
  },

  words(n) {
    const sizes = "{sequences} texts of {full} tokens have caches of {caches} GiB together, {ratio} times the " +
      "{weights} GiB of the weights";
    const one = "{sequences} text of {full} tokens has a cache of {caches} GiB, {ratio} times the {weights} GiB of the weights";
    const texts = n.sequences === 1 ? one : sizes;
    return n.caches > n.weights
      ? `${texts}. They outweigh the weights, as they do from {fewest} texts on.`
      : `${texts}. ${n.sequences === 1 ? "It still takes" : "They still take"} less; {fewest} texts would take more.`;
  },
});
