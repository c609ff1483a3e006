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
    const most = total(100).naive / (counted === "flops" ? 1e9 : 1); // the end of the axis, in the unit of its marks
    const power = 10 ** Math.floor(Math.log10(most / 2));
    const apart = power * [5, 2, 1].find((n) => n * power <= most / 2); // the widest that leaves room for two marks
    const marks = Array.from({ length: Math.floor(most / apart) + 1 }, (_, i) => i * apart);
    const curve = [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100].map((m) => ({ m, ...total(m) }));
    return { tokens, prompt, counted, curve, most, marks, naive, cached, ratio: naive / cached };
  },

  shown(n) {
    const text = n.counted === "flops" ? (x) => book.fixed(x / 1e9, 3) : book.int;
    const marks = Object.fromEntries(n.marks.map((mark, i) => [`mark${i}`, book.int(mark)]));
    const sizes = { ...marks, tokens: String(n.tokens), prompt: String(n.prompt) };
    return { ...sizes, naive: text(n.naive), cached: text(n.cached), ratio: book.fixed(n.ratio, 1) };
  },

  draw(n) {
    const [left, right, bottom, top] = [50, 388, 206, 26];
    const most = n.curve[n.curve.length - 1].naive;
    const x = (m) => left + ((right - left) * m) / 100;
    const y = (total) => bottom - ((bottom - top) * total) / most;
    const along = (key) => `M${n.curve.map((at) => `${x(at.m).toFixed(1)} ${y(at[key]).toFixed(1)}`).join("L")}`;
    const unit = n.counted === "flops" ? " GFLOP" : "";
    const marks = n.marks.map((mark, i) => {
      const at = bottom - ((bottom - top) * mark) / n.most;
      return [book.line(left - 5, at, left, at, "axis"), book.text(left - 8, at + 5, `{mark${i}}`, "end")];
    });
    return book.svg(
      242,
      "Two curves over new tokens: without a cache the work climbs more and more steeply, with one it stays near the ground",
      book.line(left, bottom, right, bottom, "axis"),
      book.line(left, bottom, left, top, "axis"),
      book.text(4, 14, unit ? "billion FLOPs (GFLOP)" : "positions"),
      marks,
      book.line(x(n.tokens), bottom, x(n.tokens), y(n.naive), "line dashed"),
      book.path(along("naive"), "c2 line strong"),
      book.path(along("cached"), "c1 line"),
      book.circle(x(n.tokens), y(n.naive), 6, "c2"),
      book.rect(x(n.tokens) - 5, y(n.cached) - 5, 10, 10, "c1"),
      book.circle(68, 38, 6, "c2"),
      book.text(80, 43, `without a cache: {naive}${unit}`, "start", "strong"),
      book.rect(63, 55, 10, 10, "c1"),
      book.text(80, 65, `with a cache: {cached}${unit}`, "start", "strong"),
      book.text(80, 87, "{ratio} times as much without it"),
      book.text(Math.min(336, Math.max(70, x(n.tokens))), bottom + 22, "new tokens: {tokens}", "middle"),
    );
  },

  words(n) {
    const what = n.counted === "flops" ? "billion FLOPs" : "positions";
    const smaller = "The output projection is needed at every step of both loops, so the ratio is smaller than that of positions.";
    const how = {
      positions: "Both numbers count the pass over the prompt.",
      decoding: "The second number leaves out the pass over the prompt, so it makes the cache look better than it is.",
      flops: n.tokens === 1 ? "The first step is the same in both loops." : smaller,
    }[n.counted];
    const answer = n.tokens === 1 ? "{tokens} new token" : "{tokens} new tokens";
    const both = `the loop without a cache computes {naive} ${what} and the one with a cache {cached}`;
    return `For ${answer} after a prompt of {prompt}, ${both}: {ratio} times as many. ${how}`;
  },
});
