"use strict";
book.figure({
  id: "top-p",
  number: 12,
  title: "Top-p keeps the smallest set that reaches p",
  controls: [
    book.range("p", "Mass to reach, p", 0.05, 1, 0.9, 0.05, (p) => p.toFixed(2)),
    book.choice(
      "temperature",
      "Row",
      [
        [0.5, "a sharper row"],
        [1, "the five scores as they are"],
        [2, "a flatter row"],
      ],
      1,
    ),
  ],

  numbers({ p, temperature }) {
    const shares = book.softmax(book.data.candidates.logits.map((z) => z / temperature)); // the largest first
    const before = shares.map((_, i) => shares.slice(0, i).reduce((sum, share) => sum + share, 0));
    const kept = p === 1 ? shares.length : before.filter((mass) => mass < p).length;
    return { p, temperature, shares, before, kept, mass: shares.slice(0, kept).reduce((sum, share) => sum + share, 0) };
  },

  shown: (n) => ({
    p: n.p.toFixed(2),
    temperature: n.temperature.toFixed(1),
    kept: String(n.kept),
    mass: book.share(n.mass),
    ...Object.fromEntries(n.shares.map((share, i) => [`share${i}`, book.share(share)])),
  }),

  draw(n) {
    const [left, wide, pitch] = [102, 200, 32];
    const x = (mass) => left + wide * mass;
    const y = (i) => 34 + pitch * i;
    const bottom = y(5) + 2;
    const rows = book.data.candidates.names.map((name, i) => {
      const [kept, last] = [i < n.kept, i === n.kept - 1];
      const verdict = !kept ? "cut" : last ? "reaches p" : "kept";
      return [
        book.text(4, y(i) + 17, name, "start", kept ? "strong" : ""),
        book.text(94, y(i) + 17, `{share${i}}%`, "end", kept ? "strong" : ""),
        i ? book.line(x(n.before[i]), y(i) - pitch + 22, x(n.before[i]), y(i), "axis") : "",
        book.rect(x(n.before[i]), y(i), Math.max(wide * n.shares[i], 2), 22, kept ? "c1" : "c2 box soft"),
        book.text(396, y(i) + 17, verdict, "end", kept ? "strong" : ""),
      ];
    });
    return book.svg(
      bottom + 28,
      "Five bars end to end, as a staircase of added probability; those that start left of the line at p are kept",
      rows,
      book.line(x(n.p), 24, x(n.p), bottom, "c2 line dashed"),
      book.text(x(n.p), 18, "p = {p}", "middle", "strong"),
      book.line(left, bottom, left + wide, bottom, "axis"),
      book.text(left, bottom + 20, `kept: {kept} ${n.kept === 1 ? "word, {mass}%" : "words, {mass}% together"}`, "start", "strong"),
    );
  },

  words(n) {
    const { names } = book.data.candidates;
    const made = "(the same scores, divided by {temperature})";
    const row = n.temperature === 1 ? "this row" : `${n.temperature < 1 ? "the sharper" : "the flatter"} row ${made}`;
    const all = n.kept === names.length;
    const which = n.kept === 1 ? `“${names[0]}” alone is` : `${all ? "all " : ""}{kept} words are`;
    const reaches = `The bar of “${names[n.kept - 1]}” is the first that reaches the line, and it stays`;
    const next = `${reaches}; “${names[n.kept]}” starts to the right of the line.`;
    const why = all ? "No bar starts to the right of the line, so nothing is cut." : next;
    const mass = n.kept === 1 ? "{mass} per cent" : "{mass} per cent together";
    return `To reach p = {p} on ${row}, ${which} kept, with ${mass}. ${why}`;
  },
});
