"use strict";
book.figure({
  id: "one-cache",
  number: 23,
  title: "GPT-3’s weights, and the cache of one text",
  controls: [book.range("context", "Tokens in the cache", 64, 2048, 2048, 64, (x) => book.int(x))],

  numbers({ context }) {
    const { gpt3 } = book.data;
    const [weights, cache] = [2 * book.parameters(gpt3).total, book.cacheBytes(gpt3, context)];
    return { context, weights, cache, share: cache / weights };
  },

  shown: (n) => ({
    context: book.int(n.context),
    weights: book.fixed(n.weights / 2 ** 30, 1),
    cache: book.fixed(n.cache / 2 ** 30, 2),
    percent: book.fixed(100 * n.share, 2),
  }),

  draw(n) {
    const [left, wide] = [10, 380];
    return book.svg(
      156,
      "Two bars to one scale: the weights fill the width, the cache of one text is a sliver",
      book.text(left, 24, "weights: {weights} GiB", "start", "strong"),
      book.rect(left, 34, wide, 34, "c1"),
      book.text(left, 100, "one cache: {cache} GiB", "start", "strong"),
      book.rect(left, 110, wide, 34, "box dashed"),
      book.rect(left, 110, wide * n.share, 34, "c2"),
      book.text(left + 30, 132, "{percent} per cent of the weights"),
    );
  },

  words: () =>
    "In sixteen bits the weights take {weights} GiB, however long the text is. The cache of one text of {context} tokens " +
      "takes {cache} GiB, which is {percent} per cent of that.",
});
