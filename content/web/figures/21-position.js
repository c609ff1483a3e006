"use strict";
book.figure({
  id: "position",
  number: 21,
  title: "The position that each new token is given",
  controls: [
    book.steps("fed", "New tokens fed", 1, 8, 6),
    book.toggle("fault", "Give every new token position 0", true),
  ],

  numbers({ fed: count, fault }) {
    const prompt = 4;
    const given = Array.from({ length: prompt + count }, (_, i) => (fault && i >= prompt ? 0 : i));
    const right = prompt + count - 1; // the cache's length when the last of them comes
    return { prompt, count, given, right, got: given[right], drift: right - given[right] };
  },

  shown: (n) => ({
    right: String(n.right),
    got: String(n.got),
    drift: String(n.drift),
    ...Object.fromEntries(n.given.map((position, i) => [`given${i}`, String(position)])),
  }),

  draw(n) {
    const [left, pitch, bottom, step] = [34, 31, 186, 14];
    const x = (i) => left + pitch * i + 10;
    const y = (position) => bottom - step * position;
    const columns = n.given.map((position, i) => {
      const now = i === n.right;
      const wrong = position !== i;
      return [
        wrong ? book.line(x(i), y(i) + 6, x(i), y(position) - 6, "c2 line dashed") : "",
        book.circle(x(i), y(i), 6, "c1 box soft"),
        wrong ? book.rect(x(i) - 6, y(position) - 6, 12, 12, "c2") : book.circle(x(i), y(i), 3.5, "c1"),
        now ? book.rect(x(i) - 14, bottom + 14, 28, 24, "lit", { rx: 3 }) : "",
        book.text(x(i), bottom + 31, `{given${i}}`, "middle", now ? "strong" : ""),
      ];
    });
    const end = (x(3) + x(4)) / 2;
    return book.svg(
      262,
      "For each token its right position, a rising line of rings, and the position that it is given",
      book.circle(20, 18, 6, "c1 box soft"),
      book.text(34, 23, "the right position: the cache’s length"),
      n.drift ? book.rect(14, 36, 12, 12, "c2") : book.circle(20, 42, 3.5, "c1"),
      book.text(34, 47, n.drift ? "the position that it is given" : "the position that it is given: the same"),
      book.text(34, 75, "drift of the newest: {drift}", "start", "strong"),
      book.line(left - 12, bottom + 8, 396, bottom + 8, "axis"),
      book.line(end, bottom - 60, end, bottom + 42, "axis dashed"),
      columns,
      book.text((x(0) + x(3)) / 2, 254, "prompt", "middle"),
      book.text((x(4) + x(11)) / 2, 254, "new tokens, as given", "middle"),
    );
  },

  words(n) {
    if (!n.drift) return "When the newest token comes, the cache holds {right} pairs, so its own is {right}, and it is " +
      "given {got}. The drift is {drift}, at every token.";
    return "The newest token belongs at position {right}, which is the cache's length, and is given {got}: a drift of " +
      "{drift}. The drift of each new token is its whole position. Every number is a valid position, so no error is raised.";
  },
});
