"use strict";
book.figure({
  id: "temperature",
  number: 10,
  title: "What a temperature does to five probabilities",
  controls: [book.range("temperature", "Temperature", 0, 3, 1, 0.1, (t) => t.toFixed(1))],

  numbers({ temperature }) {
    const { logits } = book.data.candidates;
    const top = Math.max(...logits);
    const best = logits.indexOf(top);
    const divided = temperature === 0 ? logits.map((_, i) => (i === best ? 0 : -Infinity)) : logits.map((z) => z / temperature);
    return { temperature, shares: book.softmax(divided), best, plain: book.softmax(logits) };
  },

  shown: (n) => ({
    temperature: n.temperature.toFixed(1),
    ...Object.fromEntries(n.shares.map((share, i) => [`share${i}`, book.share(share)])),
  }),

  draw(n) {
    const [bottom, tall] = [176, 150];
    const columns = book.data.candidates.names.map((name, i) => {
      const left = 14 + 76 * i;
      const height = (share) => Math.max(tall * share, 0.5);
      return [
        book.rect(left + 6, bottom - height(n.shares[i]), 56, height(n.shares[i]), "c1"),
        book.rect(left, bottom - height(n.plain[i]), 68, height(n.plain[i]), "line dashed"),
        book.text(left + 34, bottom + 18, name, "middle", i === n.best ? "strong" : ""),
        book.text(left + 34, bottom + 37, `{share${i}}%`, "middle", i === n.best ? "strong" : ""),
      ];
    });
    return book.svg(
      220,
      "Five columns of probability at the chosen temperature; dashed outlines show them with the scores undivided",
      book.text(390, 40, "temperature {temperature}", "end", "strong"),
      book.text(390, 60, "dashed: scores undivided", "end"),
      columns,
      book.line(8, bottom, 392, bottom, "axis"),
    );
  },

  words(n) {
    const { names } = book.data.candidates;
    const shares = names.map((name, i) => `“${name}” {share${i}}`).join(", ");
    if (n.temperature === 0) {
      const limit = "Smaller and smaller temperatures above it come ever closer to this.";
      const taken = `“${names[n.best]}” has the largest score and is taken.`;
      return `At temperature {temperature} nothing is divided and nothing is drawn: ${taken} ${limit}`;
    }
    const apart = "The scores are further apart than before, so the best word gains.";
    const moved = n.temperature < 1 ? apart : "The scores are closer together than before, so the best word loses.";
    const how = n.temperature === 1 ? "This is plain softmax." : moved;
    return `At temperature {temperature} the shares in per cent are ${shares}. ${how} The order does not change.`;
  },
});
