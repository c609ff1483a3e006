"use strict";
book.figure({
  id: "reads",
  number: 6,
  title: "What attention reads, and what the feed-forward network reads",
  controls: [
    book.range("position", "Position", 0, 4, 2),
    book.choice("mask", "Causal mask", [[true, "on, as in GPT-2"], [false, "off"]], true),
  ],

  numbers({ position, mask }) {
    const count = book.data.lookup.words.length;
    const seen = Array.from({ length: count }, (_, j) => !mask || j <= position);
    return { position, mask, count, seen, attention: seen.filter(Boolean).length, forward: 1 };
  },

  shown: (n) => ({
    position: String(n.position),
    count: String(n.count),
    attention: String(n.attention),
    forward: String(n.forward),
    ...Object.fromEntries(n.seen.map((_, j) => [`position${j}`, String(j)])),
  }),

  draw(n) {
    const { words } = book.data.lookup;
    const [pitch, wide] = [78, 66];
    const x = (j) => 6 + wide / 2 + pitch * j;
    const panel = (top, name, seen, colour, count) => {
      const [above, below] = [top + 12, top + 98];
      return [
        book.text(6, top, name, "start", "strong"),
        book.text(394, top, count, "end"),
        words.map((_, j) => {
          const now = j === n.position;
          return [
            book.rect(x(j) - wide / 2, above, wide, 28, now ? "lit" : "box dashed", { rx: 4 }),
            now ? book.text(x(j), above + 19, "writes", "middle", "strong") : "",
            seen[j] ? book.arrow(x(j), below, x(n.position) + 7 * (j - n.position), above + 31, `${colour} line strong`) : "",
          ];
        }),
        words.map((word, j) => [
          book.rect(x(j) - wide / 2, below, wide, 30, seen[j] ? `${colour} box soft` : "box dashed", { rx: 4 }),
          book.text(x(j), below + 20, word, "middle", seen[j] ? "strong" : ""),
          seen[j] ? "" : book.text(x(j), below - 8, "✕", "middle"),
        ]),
      ];
    };
    const alone = n.seen.map((_, j) => j === n.position);
    return book.svg(
      338,
      "Two panels of five tokens, with lines from those that are read to the chosen one: several for attention, one for the other",
      panel(16, "Attention", n.seen, "c1", "reads {attention} of {count}"),
      panel(178, "Feed-forward network", alone, "c3", "reads {forward} of {count}"),
      words.map((_, j) => book.text(x(j), 326, `{position${j}}`, "middle")),
    );
  },

  words(n) {
    const itself = n.position ? "itself and those before it" : "itself alone, since none is before it";
    const all = n.position === n.count - 1 ? "itself and those before it; none comes after it" : "all of them, those after it too";
    const reads = `attention ${n.mask ? "" : "without the mask "}reads {attention} of the {count}: ${n.mask ? itself : all}`;
    const own = "The feed-forward network reads {forward}, the token’s own position, with the mask or without it";
    return `At position {position}, ${reads}. ${own}.`;
  },
});
