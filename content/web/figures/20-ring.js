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
    const lost = Array.from({ length: Math.max(0, fed - slots - first) }, (_, i) => first + i); // to be read, and overwritten
    const gone = held.map((_, slot) => lost.filter((position) => position % slots === slot)); // the same, by their slots
    const [slot, over] = [position % slots, position - slots];
    return { slots, fed, window, position, first, held, slot, over, needed: fed - first, lost: lost.length, gone };
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
    ...Object.fromEntries(n.gone.flatMap((positions, i) => (positions.length ? [[`lost${i}`, positions.join(", ")]] : []))),
  }),

  draw(n) {
    const [cx, cy, r] = [128, 132, 92];
    const slots = Array.from({ length: 8 }, (_, i) => {
      const angle = (2 * Math.PI * i) / 8 - Math.PI / 2;
      const [x, y] = [cx + r * Math.cos(angle), cy + r * Math.sin(angle)];
      const [ix, iy] = [cx + 40 * Math.cos(angle), cy + 40 * Math.sin(angle) + 5];
      const filled = i < n.held.length;
      const read = filled && n.held[i] >= n.first;
      const kind = !filled ? "box dashed" : i === n.slot ? "lit" : read ? "c1 box soft" : "box";
      const lost = filled && n.gone[i].length > 0;
      const middle = lost ? y - 8 : y; // a lost position stands below the one that took its slot
      return [
        book.rect(x - 28, y - 22, 56, 44, kind, { rx: 4 }),
        filled ? book.text(x, middle + 5, `{at${i}}`, "middle", read ? "strong" : "") : "",
        filled && !read ? book.line(x - 14, middle, x + 14, middle) : "",
        lost ? book.text(x, y + 15, `✗ {lost${i}}`, "middle", "small") : "",
        book.text(ix, iy, `{slot${i}}`, "middle", "small"),
      ];
    });
    const past = n.held.some((position) => position < n.first);
    const lines = [
      ["newest: position {position}", ""],
      ["written to slot {slot}", ""],
      [n.over >= 0 ? "over position {over}" : "which was empty", ""],
      ["it has to read: {needed}", ""],
      ["of these lost: {lost}", "strong"],
    ];
    return book.svg(
      302,
      "Eight slots in a ring, each with the position whose key and value it holds",
      book.circle(cx, cy, r, "axis"),
      slots,
      book.text(cx, cy + 5, "slots", "middle", "small"),
      lines.map(([line, kind], i) => book.text(260, 62 + 26 * i, line, "start", kind)),
      book.rect(258, 186, 138, 30, n.lost ? "c2 box soft" : "c3 box soft", { rx: 4 }),
      book.text(327, 206, n.lost ? "silently wrong" : "✓ right", "middle", "strong"),
      n.lost ? book.text(8, 290, "✗ lost: overwritten, and still to be read") : "",
      past ? [book.line(8, 285, 24, 285), book.text(32, 290, "held, and never read again")] : "",
    );
  },

  words(n) {
    const written = n.over >= 0 ? "over the pair of position {over}" : "which was empty";
    const reads = n.needed === 1 ? "{needed} position, its own, which is" : "{needed} positions, itself included";
    const start = `Position {position} is written to slot {slot}, ${written}. It has to read ${reads}`;
    const lost = n.lost === 1 ? "{lost} of them is overwritten" : "{lost} of them are overwritten";
    if (n.lost) return `${start}, and ${lost}. No error says so: the scores are computed from what is left.`;
    const all = n.needed === 1 ? `${start} in the ring` : `${start}, and all are in the ring`;
    if (!n.window) return `${all}. That ends when the ring of {slots} slots is full and one more token is fed.`;
    if (n.window > n.slots) return `${all}. The window of {window} is longer than the ring of {slots}, so that will not last.`;
    return `${all}. A window of {window} never needs more than the {slots} slots, so the ring stays right.`;
  },
});
