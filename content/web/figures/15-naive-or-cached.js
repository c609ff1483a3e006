"use strict";
book.figure({
  id: "naive-or-cached",
  number: 15,
  title: "Which positions each step computes, without a cache and with one",
  controls: [
    book.choice(
      "way",
      "Loop",
      [
        ["naive", "without a cache"],
        ["cached", "with a cache"],
      ],
      "naive",
    ),
    book.steps("step", "Step", 1, 8, 5),
  ],

  numbers({ way, step }) {
    const prompt = book.data.passage.prompt.length;
    const rows = Array.from({ length: step }, (_, j) => (way === "naive" ? prompt + j : j ? 1 : prompt));
    return { way, step, prompt, rows, read: prompt + step - 1, total: rows.reduce((a, b) => a + b, 0) };
  },

  shown: (n) => ({
    step: String(n.step),
    read: String(n.read),
    total: String(n.total),
    now: String(n.rows[n.step - 1]),
    ...Object.fromEntries(n.rows.map((count, j) => [`row${j}`, String(count)])),
  }),

  draw(n) {
    const [left, pitch, tall] = [60, 25, 25];
    const columns = n.prompt + 7;
    const y = (j) => 40 + tall * j;
    const rows = Array.from({ length: 8 }, (_, j) => {
      const [read, count, now] = [n.prompt + j, n.rows[j], j === n.step - 1];
      if (j >= n.step) return book.line(left, y(j) + 12, left + pitch * read, y(j) + 12, "line faint");
      const cells = Array.from({ length: read }, (_, i) => {
        const [x, computed] = [left + pitch * i, i >= read - count];
        const kind = !computed ? "box" : now ? "lit" : "c2 box soft";
        const dot = computed ? book.circle(x + 10.5, y(j) + 10, 3.5, "c2") : "";
        return book.rect(x, y(j), pitch - 4, tall - 5, kind, { rx: 2 }) + dot;
      });
      const bold = now ? "strong" : "";
      const label = now ? book.text(4, y(j) + 15, "step {step}", "start", bold) : "";
      return [label, cells, book.text(396, y(j) + 15, `{row${j}}`, "end", bold)];
    });
    const middle = left + pitch * n.prompt;
    const bottom = y(8) + 2;
    const kept = book.text(left + 210, bottom + 44, "kept from before");
    return book.svg(
      bottom + 52,
      "A row of cells for each step, one cell for each position read; a dot marks those that are computed in that step",
      book.text((left + middle) / 2 - 2, 14, "prompt", "middle"),
      book.text((middle + left + pitch * columns) / 2, 14, "new tokens fed back", "middle"),
      book.line(left, 24, middle - 6, 24, "axis"),
      book.line(middle, 24, left + pitch * columns - 4, 24, "axis"),
      rows,
      book.line(left, bottom, 396, bottom, "axis"),
      book.text(396, bottom + 20, "positions computed so far: {total}", "end", "strong"),
      book.circle(left + 8, bottom + 39, 3.5, "c2"),
      book.text(left + 18, bottom + 44, "computed in that step"),
      n.way === "cached" ? [book.rect(left + 182, bottom + 31, 21, 16, "box", { rx: 2 }), kept] : "",
    );
  },

  words(n) {
    const sum = "Up to here that makes {total} positions";
    if (n.way === "naive") return `Without a cache, step {step} computes all {now} positions that it reads. ${sum}.`;
    if (n.step === 1) return "With a cache, step {step} computes all {now} positions of the prompt: the cache is still empty.";
    const newest = "With a cache, step {step} computes only the newest position, {now} of the {read} that it reads";
    return `${newest}. ${sum}, those of the prompt among them.`;
  },
});
