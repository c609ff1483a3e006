"use strict";
book.figure({
  id: "totals-gpt2",
  number: 17,
  title: "The same totals on GPT-2’s shape, to a hundred new tokens",
  controls: [
    book.range("tokens", "New tokens", 1, 100, 100),
    book.choice(
      "counted",
      "Counted",
      [
        ["positions", "positions, with the prefill"],
        ["decoding", "positions, without the prefill"],
        ["flops", "FLOPs, with the prefill"],
      ],
      "positions",
    ),
  ],

  numbers({ tokens, counted }) {
    const { prompt, ...shape } = book.data.loops.gpt2;
    const total = (m) => {
      if (counted === "flops") return book.flops(shape, prompt, m);
      const { naive, cached } = book.positions(prompt, m);
      return { naive, cached: counted === "decoding" ? m : cached };
    };
    const { naive, cached } = total(tokens);
    const curve = [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100].map((m) => ({ m, ...total(m) }));
    return { tokens, prompt, counted, curve, naive, cached, ratio: naive / cached };
  },

  shown(n) {
    const text = n.counted === "flops" ? (x) => book.fixed(x / 1e9, 1) : book.int;
    const sizes = { tokens: String(n.tokens), prompt: String(n.prompt) };
    return { ...sizes, naive: text(n.naive), cached: text(n.cached), ratio: book.fixed(n.ratio, 1) };
  },

  draw(n) {
    const [left, right, bottom, top] = [16, 384, 206, 22];
    const most = n.curve[n.curve.length - 1].naive;
    const x = (m) => left + ((right - left) * m) / 100;
    const y = (total) => bottom - ((bottom - top) * total) / most;
    const along = (key) => `M${n.curve.map((at) => `${x(at.m).toFixed(1)} ${y(at[key]).toFixed(1)}`).join("L")}`;
    const unit = n.counted === "flops" ? " GFLOP" : "";
    return book.svg(
      242,
      "Two curves over new tokens: without a cache the work climbs more and more steeply, with one it stays near the ground",
      book.line(left, bottom, right, bottom, "axis"),
      book.line(left, bottom, left, top, "axis"),
      book.line(x(n.tokens), bottom, x(n.tokens), y(n.naive), "line dashed"),
      book.path(along("naive"), "c2 line strong"),
      book.path(along("cached"), "c1 line"),
      book.circle(x(n.tokens), y(n.naive), 6, "c2"),
      book.rect(x(n.tokens) - 5, y(n.cached) - 5, 10, 10, "c1"),
      book.circle(34, 32, 6, "c2"),
      book.text(46, 37, `without a cache: {naive}${unit}`, "start", "strong"),
      book.rect(29, 49, 10, 10, "c1"),
      book.text(46, 59, `with a cache: {cached}${unit}`, "start", "strong"),
      book.text(46, 81, "{ratio} times as much without it"),
      book.text(Math.min(336, Math.max(64, x(n.tokens))), bottom + 22, "new tokens: {tokens}", "middle"),
    );
  },

  words(n) {
    const what = n.counted === "flops" ? "billion FLOPs" : "positions";
    const how = {
      positions: "Both numbers count the pass over the prompt.",
      decoding: "The second number leaves out the pass over the prompt, so it makes the cache look better than it is.",
      flops: "The output projection is needed at every step of both loops, so the ratio is smaller than that of positions.",
    }[n.counted];
    const answer = n.tokens === 1 ? "{tokens} new token" : "{tokens} new tokens";
    const both = `the loop without a cache computes {naive} ${what} and the one with a cache {cached}`;
    return `For ${answer} after a prompt of {prompt}, ${both}: {ratio} times as many. ${how}`;
  },
});
