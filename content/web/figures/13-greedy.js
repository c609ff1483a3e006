"use strict";
{
  const DRAWN = { mat: "the", rug: "the", saw: "cat" }; // a word that may be drawn, and the word after which it is
  const option = (word) => [word, `“${word}” after a second “${DRAWN[word]}”`];
  const RING = { the: [150, 26], cat: [312, 26], sat: [312, 146], on: [150, 146] }; // where the boxes stand: the cycle
  const PLACES = { ...RING, and: [44, 26], mat: [44, 86], rug: [44, 146], saw: [231, 86] }; // and the ways into it

  /** Indices of words: the greedy text from `start` with so many words behind it, one of them drawn; `at` is where, or null. */
  const text = (start, steps, drawn) => {
    const { words, counts } = book.data.bigram;
    const best = (i) => counts[i].indexOf(Math.max(...counts[i]));
    const found = [words.indexOf(start)];
    const before = words.indexOf(DRAWN[drawn]);
    let at = null;
    while (found.length <= steps) {
      const last = found[found.length - 1];
      const again = last === before && found.filter((i) => i === before).length === 2;
      if (at === null && again) at = found.length;
      found.push(at === found.length ? words.indexOf(drawn) : best(last));
    }
    return { found, at };
  };

  /** Where a greedy text of single words comes back to one it had: {start, length}, or null. */
  const cycle = (indices) => {
    for (let t = 0; t < indices.length; t++) {
      const seen = indices.indexOf(indices[t]);
      if (seen < t) return { start: seen, length: t - seen };
    }
    return null;
  };

  book.figure({
    id: "greedy",
    number: 13,
    title: "A greedy loop that repeats, and one drawn step",
    controls: [
      book.steps("steps", "Words written", 0, 18, 12),
      book.choice("start", "First word", Object.keys(PLACES).map((word) => [word, word]), "mat"),
      book.choice("drawn", "One drawn step", [["", "none, all greedy"], ...Object.keys(DRAWN).map(option)], ""),
    ],

    numbers({ steps, start, drawn }) {
      const { words, counts } = book.data.bigram;
      const { found, at } = text(start, steps, drawn);
      const written = found.map((i) => words[i]);
      if (at === null) return { written, at, first: cycle(found) };
      const row = counts[found[at - 1]];
      return { written, at, chance: row[found[at]] / row.reduce((a, b) => a + b, 0), again: cycle(found.slice(at)) };
    },

    shown: (n, { steps }) => ({
      steps: String(steps),
      ...(n.first && { enters: String(n.first.start), length: String(n.first.length) }),
      ...(n.at !== null && { chance: (100 * n.chance).toFixed(0), at: String(n.at) }),
      ...(n.again && { away: String(n.again.start), again: String(n.again.length) }),
    }),

    draw(n) {
      const { words, counts } = book.data.bigram;
      const [wide, tall] = [62, 32];
      const edge = (from, to, kind) => {
        const [[x1, y1], [x2, y2]] = [PLACES[from], PLACES[to]];
        const [dx, dy] = [x2 - x1, y2 - y1];
        const inside = Math.min(dx ? wide / 2 / Math.abs(dx) : 1, dy ? tall / 2 / Math.abs(dy) : 1); // the part within a box
        const cut = inside + 3 / Math.hypot(dx, dy);
        return book.arrow(x1 + dx * cut, y1 + dy * cut, x2 - dx * cut, y2 - dy * cut, kind);
      };
      const now = n.written[n.written.length - 1];
      const drawn = n.at === null ? null : n.written[n.at];
      const edges = words.map((word, i) => edge(word, words[counts[i].indexOf(Math.max(...counts[i]))], "line"));
      const nodes = words.map((word) => {
        const [x, y] = PLACES[word];
        const kind = word === now ? "lit" : n.written.includes(word) ? "done" : "box";
        return [
          book.rect(x - wide / 2, y - tall / 2, wide, tall, kind, { rx: 5 }),
          book.text(x, y + 5, word, "middle", word === now ? "strong" : ""),
        ];
      });
      const cells = n.written.map((word, i) => {
        const kind = i === n.at ? "c2 dashed" : i === n.written.length - 1 ? "lit" : i ? "" : "done";
        return `<li class="cell ${kind}">${word}${i === n.at ? " (drawn)" : ""}</li>`;
      });
      return (
        book.svg(
          172,
          "Eight words, each with an arrow to the word that follows it most often; four of them form a ring",
          edges,
          drawn ? edge(n.written[n.at - 1], drawn, "c2 line dashed") : "",
          nodes,
        ) + `<ol class="cells">${cells.join("")}</ol>`
      );
    },

    words(n, { start }) {
      const from = `{steps} words after “${start}”:`;
      const many = (key, count) => `{${key}} word${count === 1 ? "" : "s"}`;
      if (n.at === null) {
        if (!n.first) return `${from} no word has come back yet, so nothing is known of a cycle.`;
        const begins = n.first.start ? `after ${many("enters", n.first.start)}` : "with the first word";
        const back = `“${n.written[n.first.start]}” has come back, so everything after it must come back too.`;
        return `${from} ${back} The text is in a cycle of {length} words, which begins ${begins}.`;
      }
      const word = n.written[n.at];
      const drawn = `${from} word {at} was drawn. It is “${word}”, which a draw takes with {chance} per cent.`;
      if (!n.again) return `${drawn} It is not in the ring. The steps after it are greedy again.`;
      const back = `${many("away", n.again.start)} later the text was in a cycle of {again} words again`;
      return `${drawn} The steps after it were greedy, and ${back}.`;
    },
  });
}
