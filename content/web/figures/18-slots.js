"use strict";
book.figure({
  id: "slots",
  number: 18,
  title: "Tokens of the text, and pairs in the cache",
  controls: [book.range("prompt", "Tokens of the prompt", 1, 5, 3), book.steps("emitted", "Tokens emitted", 0, 7, 4)],

  numbers({ prompt, emitted }) {
    const fed = emitted === 0 ? 0 : emitted === 1 ? prompt : 1; // in the pass that chose the newest token
    const pairs = emitted === 0 ? 0 : prompt + emitted - 1; // the newest token has not been fed
    return { prompt, emitted, fed, pairs, tokens: prompt + emitted };
  },

  shown: (n) => Object.fromEntries(Object.entries(n).map(([key, value]) => [key, book.int(value)])),

  draw(n) {
    const [left, pitch, width] = [8, 32.2, 29];
    const columns = Array.from({ length: 12 }, (_, i) => {
      const x = left + pitch * i;
      const middle = x + width / 2;
      const newest = n.emitted > 0 && i === n.tokens - 1;
      const kind = newest ? "lit" : i < n.prompt ? "done" : "c3 box soft";
      const token = i < n.tokens ? book.rect(x, 34, width, 28, kind, { rx: 3 }) : "";
      const name = newest ? "new" : i < n.prompt ? `p${i + 1}` : `t${i - n.prompt + 1}`;
      const mark = i < n.tokens ? book.text(middle, 53, name, "middle", "small") : "";
      if (i >= n.pairs) return [token, mark, book.rect(x, 92, width, 60, "box dashed", { rx: 3 })];
      const now = i >= n.pairs - n.fed;
      const halves = [
        ["K", "c1", 92],
        ["V", "c2", 122],
      ].map(([letter, colour, y]) => [
        book.rect(x, y, width, 30, `${colour} box soft`, { rx: 3 }),
        book.text(middle, y + 20, letter, "middle", now ? "strong" : ""),
      ]);
      const written = now ? book.line(x, 159, x + width, 159, "line strong") : "";
      return [token, mark, book.line(middle, 64, middle, 89, now ? "line" : "axis"), halves, written];
    });
    return book.svg(
      222,
      "Above, a cell for each token of the text; below, the slots of the cache, each empty or with a key and a value",
      book.text(left, 22, `text: {tokens} ${n.tokens === 1 ? "token" : "tokens"}`, "start", "strong"),
      columns,
      book.text(left, 188, `cache: {pairs} ${n.pairs === 1 ? "pair" : "pairs"} of a key and a value`, "start", "strong"),
      n.emitted ? book.line(left, 207, left + 20, 207, "line strong") : "",
      n.emitted ? book.text(left + 28, 212, "written by the pass that chose “new”: {fed}") : "",
    );
  },

  words(n) {
    const prompt = `{prompt} ${n.prompt === 1 ? "token" : "tokens"}`;
    if (!n.emitted) return `The text is the prompt, ${prompt}. Nothing has been fed yet, so the cache is empty: it holds ` +
      "{pairs} pairs.";
    const text = `The prompt has ${prompt}, and {emitted} more ${n.emitted === 1 ? "has" : "have"} been emitted, so the text has ` +
      `{tokens} tokens. The cache holds {pairs} ${n.pairs === 1 ? "pair" : "pairs"}, one fewer`;
    const first = n.fed === 1 ? "wrote {fed} pair, that of the prompt" : "wrote {fed} pairs, those of the prompt";
    const pass = n.emitted === 1 ? first : "wrote {fed} pair, and changed no older one";
    return `${text}: the newest token has been chosen and not yet fed. The pass that chose it ${pass}.`;
  },
});
