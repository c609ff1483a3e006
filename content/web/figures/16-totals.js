"use strict";
book.figure({
  id: "totals",
  number: 16,
  title: "Two running totals on a toy of four layers",
  controls: [book.range("tokens", "New tokens", 1, 12, 12), book.toggle("prefill", "Count the prefill", true)],

  numbers({ tokens, prefill }) {
    const { prompt, ...shape } = book.data.loops.toy;
    const total = (m) => {
      const { naive, cached } = book.positions(prompt, m);
      return { naive, cached: prefill ? cached : m };
    };
    const totals = Array.from({ length: 12 }, (_, i) => total(i + 1));
    const { naive, cached } = totals[tokens - 1];
    const flops = prefill ? book.flops(shape, prompt, tokens) : null; // without the prompt's pass they have no agreed meaning
    return { tokens, prompt, totals, naive, cached, ratio: naive / cached, flops };
  },

  shown: (n) => ({
    tokens: String(n.tokens),
    prompt: String(n.prompt),
    naive: book.int(n.naive),
    cached: book.int(n.cached),
    ratio: book.fixed(n.ratio, 1),
    ...(n.flops && {
      naive_mflop: book.fixed(n.flops.naive / 1e6, 3),
      cached_mflop: book.fixed(n.flops.cached / 1e6, 3),
      flop_ratio: book.fixed(n.flops.naive / n.flops.cached, 1),
    }),
  }),

  draw(n) {
    const [left, pitch, bottom, tall] = [14, 31.5, 196, 172];
    const most = n.totals[11].naive;
    const height = (total) => (tall * total) / most;
    const columns = n.totals.map(({ naive, cached }, i) => {
      const [x, reached, now] = [left + pitch * i, i < n.tokens, i === n.tokens - 1];
      return [
        now ? book.rect(x - 3, bottom + 1, 30, 22, "lit", { rx: 3 }) : "",
        book.rect(x, bottom - height(naive), 13, height(naive), reached ? "c2" : "faint"),
        book.rect(x + 13, bottom - height(cached), 11, height(cached), reached ? "c1 box soft" : "faint"),
        now ? book.text(x + 12, bottom + 17, "{tokens}", "middle", "strong") : "",
      ];
    });
    return book.svg(
      248,
      "Pairs of columns, one pair for each number of new tokens: positions without a cache, and with one",
      columns,
      book.line(left - 4, bottom, 396, bottom, "axis"),
      book.rect(12, 12, 14, 14, "c2"),
      book.text(32, 24, "without a cache: {naive}", "start", "strong"),
      book.rect(12, 34, 14, 14, "c1 box soft"),
      book.text(32, 46, "with a cache: {cached}", "start", "strong"),
      book.text(32, 68, "{ratio} times as many without it"),
      book.text(200, 240, n.flops ? "positions, with the prefill" : "positions, without the cached loop’s prefill", "middle"),
    );
  },

  words(n) {
    const end = n.flops
      ? "In FLOPs that is {naive_mflop} million and {cached_mflop} million, {flop_ratio} times as many."
      : "The second number leaves out the pass over the prompt, which both loops have to run.";
    const answer = n.tokens === 1 ? "{tokens} new token" : "{tokens} new tokens";
    const both = "the loop without a cache computes {naive} positions and the one with a cache {cached}";
    return `For ${answer} after a prompt of {prompt}, ${both}: {ratio} times as many. ${end}`;
  },
});
