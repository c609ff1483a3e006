"use strict";
{
  const DRAWN = { mat: "the", rug: "the", saw: "cat" }; // a word that may be drawn, and the word after which it is
  const option = (word) => [word, `“${word}” after a second “${DRAWN[word]}”`];
  const CYCLE = { the: [150, 26], cat: [312, 26], sat: [312, 146], on: [150, 146] }; // where the boxes stand: the cycle
  const PLACES = { ...CYCLE, and: [44, 26], mat: [44, 86], rug: [44, 146], saw: [231, 86] }; // and the ways into it

  /** The most frequent successor of a word; of equal ones the first. */
  const best = (i) => book.data.bigram.counts[i].indexOf(Math.max(...book.data.bigram.counts[i]));

  /** How much of a word's successors is one of them. */
  const share = (i, next) => book.data.bigram.counts[i][next] / book.data.bigram.counts[i].reduce((a, b) => a + b, 0);

  /** Indices of words: the greedy text from `start` and so many words after it, one of them drawn; `at` is where, or null. */
  const text = (start, steps, drawn) => {
    const { words } = book.data.bigram;
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

  /** {start, length} of the cycle that the greedy text from one word runs into: there is one after as many steps as there are words. */
  const wayIn = (word) => cycle(text(word, book.data.bigram.words.length, "").found);

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
      const { words } = book.data.bigram;
      const { found, at } = text(start, steps, drawn);
      const written = found.map((i) => words[i]);
      const shares = words.map((_, i) => share(i, best(i)));
      if (at === null) return { written, shares, at, first: cycle(found) };
      const back = wayIn(drawn);
      const again = steps - at < back.start ? null : back; // not before the text has come so far
      return { written, shares, at, chance: share(found[at - 1], found[at]), again };
    },

    shown: (n, { steps }) => ({
      steps: String(steps),
      ...Object.fromEntries(n.shares.map((share, i) => [`best${i}`, (100 * share).toFixed(0)])),
      ...(n.first && { enters: String(n.first.start), length: String(n.first.length) }),
      ...(n.at !== null && { chance: (100 * n.chance).toFixed(0), at: String(n.at) }),
      ...(n.again && { away: String(n.again.start), again: String(n.again.length) }),
    }),

    draw(n) {
      const { sentence, words } = book.data.bigram;
      const [wide, tall] = [62, 32];
      const edge = (from, to, kind, key) => {
        const [[x1, y1], [x2, y2]] = [PLACES[from], PLACES[to]];
        const [dx, dy] = [x2 - x1, y2 - y1];
        const inside = Math.min(dx ? wide / 2 / Math.abs(dx) : 1, dy ? tall / 2 / Math.abs(dy) : 1); // the part within a box
        const cut = inside + 3 / Math.hypot(dx, dy);
        const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
        const below = dx && (dx < 0) === (dy > 0) ? 14 : dx ? -2 : 5; // beside a line that leans to the right, to the left, or stands
        const beside = book.text(x + (dx ? 10 : 8), y + below, `{${key}}%`, "start", "small");
        const label = dy ? beside : book.text(x, y - 7, `{${key}}%`, "middle", "small");
        return book.arrow(x1 + dx * cut, y1 + dy * cut, x2 - dx * cut, y2 - dy * cut, kind) + label;
      };
      const now = n.written[n.written.length - 1];
      const drawn = n.at === null ? null : n.written[n.at];
      const edges = words.map((word, i) => edge(word, words[best(i)], "line", `best${i}`));
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
      const graph = book.svg(
        172,
        "Eight words, each with an arrow to the word that follows it most often; four of them form a cycle",
        edges,
        drawn ? edge(n.written[n.at - 1], drawn, "c2 line dashed", "chance") : "",
        nodes,
      );
      return `<p>The sentence: <em>${sentence}</em></p>${graph}<ol class="cells">${cells.join("")}</ol>`;
    },

    words(n, { steps, start, drawn }) {
      const from = `{steps} word${steps === 1 ? "" : "s"} after “${start}”:`;
      const many = (key, count) => `{${key}} word${count === 1 ? "" : "s"}`;
      if (n.at === null) {
        const due = n.written.filter((word) => word === DRAWN[drawn]).length === 2 ? "The next word will be drawn." : "";
        const later = drawn && (due || `The drawn step comes after the second “${DRAWN[drawn]}”.`);
        if (drawn && n.first) return `${from} “${n.written[n.first.start]}” has come back. ${later}`;
        if (!n.first) return `${from} no word has come back yet, so nothing is known of a cycle. ${later}`.trim();
        const begins = n.first.start ? `after ${many("enters", n.first.start)}` : "with the first word";
        const back = `“${n.written[n.first.start]}” has come back, so everything after it must come back too.`;
        return `${from} ${back} The text is in a cycle of {length} words, which begins ${begins}.`;
      }
      const word = n.written[n.at];
      const taken = `${from} word {at} was drawn. It is “${word}”, which a draw takes with {chance} per cent.`;
      if (!n.again) return `${taken} It is not in the cycle. The steps after it are greedy again.`;
      const back = `${many("away", n.again.start)} later the text was in the old cycle of {again} words again`;
      return `${taken} The steps after it were greedy, and ${back}.`;
    },
  });
}
