"use strict";
book.figure({
  id: "top-k",
  number: 11,
  title: "What top-k keeps, and what it discards",
  controls: [book.range("k", "Candidates kept, k", 1, 5, 2)],

  numbers({ k }) {
    const { logits } = book.data.candidates; // the largest first
    const before = book.softmax(logits);
    const after = book.softmax(logits.map((z, i) => (i < k ? z : -Infinity)));
    return { k, before, after, discarded: before.slice(k).reduce((sum, share) => sum + share, 0) };
  },

  shown: (n) => ({
    k: String(n.k),
    discarded: book.fixed(100 * n.discarded, 2),
    ...Object.fromEntries(n.before.map((share, i) => [`before${i}`, book.share(share)])),
    ...Object.fromEntries(n.after.slice(0, n.k).map((share, i) => [`after${i}`, book.share(share)])),
  }),

  draw(n) {
    const [left, wide, pitch] = [54, 188, 36];
    const y = (i) => 12 + pitch * i;
    const rows = book.data.candidates.names.map((name, i) => {
      const kept = i < n.k;
      return [
        book.text(4, y(i) + 18, name),
        book.rect(left, y(i) + 2, Math.max(wide * n.before[i], 2), 10, kept ? "c1 box soft" : "c2 box soft"),
        kept ? book.rect(left, y(i) + 14, Math.max(wide * n.after[i], 2), 10, "c1") : "",
        book.text(396, y(i) + 18, kept ? `{before${i}}% → {after${i}}%` : `{before${i}}% → cut`, "end", kept ? "strong" : ""),
      ];
    });
    const line = y(n.k) - 5;
    const last = y(5) + 20;
    return book.svg(
      last + 34,
      "A pale bar for each word before the cut, a full one after it, and a line below the last word kept",
      rows,
      book.line(4, line, 396, line, "c2 line dashed"),
      book.text(4, last + 12, "cut", "start", "strong"),
      book.rect(left, last, wide, 16, "box"),
      n.discarded ? book.rect(left, last, wide * n.discarded, 16, "c2") : "",
      book.text(396, last + 12, n.k < n.before.length ? "{discarded}% discarded" : "nothing discarded", "end", "strong"),
    );
  },

  words(n) {
    const { names } = book.data.candidates;
    if (n.k === names.length) return "All {k} words are kept, so nothing is discarded and no share changes.";
    const one = n.k === 1;
    const several = `The {k} words from “${names[0]}” to “${names[n.k - 1]}” are kept`;
    const kept = one ? `Only “${names[0]}” is kept` : several;
    const shared = "The shares of the words kept are divided by their sum, so that they make a whole again.";
    const end = one ? "One word is left, so no draw is needed: this is greedy decoding." : shared;
    const last = `“${names[n.k]}” had {discarded} per cent, which is discarded.`;
    const rest = n.k === names.length - 1 ? last : "The others had {discarded} per cent together, which is discarded.";
    return `${kept}. ${rest} ${end}`;
  },
});
