"use strict";
book.figure({
  id: "ring",
  number: 20,
  title: "A ring of eight slots",
  controls: [
    book.steps("fed", "Tokens fed", 1, 20, 11),
    book.choice(
      "window",
      "A token attends to",
      [
        [0, "all tokens so far"],
        [10, "the last ten"],
        [8, "the last eight"],
        [5, "the last five"],
      ],
      0,
    ),
  ],

  numbers({ fed, window }) {
    const slots = 8;
    const position = fed - 1; // of the newest token
    const first = window ? Math.max(0, fed - window) : 0; // the oldest position that it has to read
    const held = Array.from({ length: Math.min(fed, slots) }, (_, slot) => position - ((position - slot) % slots));
    const lost = Math.max(0, fed - slots - first);
    return { slots, fed, window, position, first, held, slot: position % slots, over: position - slots, needed: fed - first, lost };
  },

  shown: (n) => ({
    slots: String(n.slots),
    position: String(n.position),
    slot: String(n.slot),
    needed: String(n.needed),
    lost: String(n.lost),
    ...(n.window && { window: String(n.window) }),
    ...(n.over >= 0 && { over: String(n.over) }),
    ...Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`slot${i}`, String(i)])),
    ...Object.fromEntries(n.held.map((position, i) => [`at${i}`, String(position)])),
  }),

  draw(n) {
    const [cx, cy, r] = [128, 132, 92];
    const slots = Array.from({ length: 8 }, (_, i) => {
      const angle = (2 * Math.PI * i) / 8 - Math.PI / 2;
      const [x, y] = [cx + r * Math.cos(angle), cy + r * Math.sin(angle)];
      const [ix, iy] = [cx + 52 * Math.cos(angle), cy + 52 * Math.sin(angle) + 5];
      const filled = i < n.held.length;
      const read = filled && n.held[i] >= n.first;
      const kind = !filled ? "box dashed" : i === n.slot ? "lit" : read ? "c1 box soft" : "box";
      return [
        book.rect(x - 24, y - 16, 48, 32, kind, { rx: 4 }),
        filled ? book.text(x, y + 5, `{at${i}}`, "middle", read ? "strong" : "") : "",
        filled && !read ? book.line(x - 14, y, x + 14, y) : "",
        book.text(ix, iy, `{slot${i}}`, "middle", "small"),
      ];
    });
    const right = n.lost ? "silently wrong" : "right";
    const lines = [
      ["newest: position {position}", ""],
      ["written to slot {slot}", ""],
      [n.over >= 0 ? "over position {over}" : "which was empty", ""],
      ["it has to read: {needed}", ""],
      ["of these lost: {lost}", "strong"],
    ];
    return book.svg(
      266,
      "Eight slots in a ring, each with the position whose key and value it holds",
      book.circle(cx, cy, r, "axis"),
      slots,
      book.text(cx, cy + 5, "slots", "middle", "small"),
      lines.map(([line, kind], i) => book.text(260, 62 + 26 * i, line, "start", kind)),
      book.rect(258, 186, 138, 30, n.lost ? "c2 box soft" : "c3 box soft", { rx: 4 }),
      book.text(327, 206, `${n.lost ? "✗" : "✓"} ${right}`, "middle", "strong"),
    );
  },

  words(n) {
    const written = n.over >= 0 ? "over the pair of position {over}" : "which was empty";
    const start = `Position {position} is written to slot {slot}, ${written}. It has to read {needed} positions, itself included`;
    if (n.lost) return `${start}, and {lost} of them are overwritten. No error says so: the scores are computed from what is left.`;
    if (!n.window) return `${start}, and all are in the ring. That ends when the ring of {slots} slots is full.`;
    if (n.window > n.slots) return `${start}, and all are in the ring. The window of {window} is longer than the ring of ` +
      "{slots}, so that will not last.";
    return `${start}, and all are in the ring. A window of {window} never needs more than the {slots} slots, so ` +
      "the ring stays right.";
  },
});
