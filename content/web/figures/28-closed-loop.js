"use strict";
book.figure({
  id: "closed-loop",
  number: 28,
  title: "The loop, closed",
  controls: [book.steps("step", "Step", 1, 30, 3), book.toggle("closed", "Close the loop", true)],

  stages: ["ids", "embed", "blocks", "logits", "choose", "append"],

  numbers({ step, closed }) {
    const count = this.stages.length;
    const at = closed ? step : Math.min(step, count); // with the loop open nothing follows the first token
    const [turn, stage] = [Math.floor((at - 1) / count), (at - 1) % count];
    const prompt = book.data.passage.prompt.length;
    const fed = turn === 0 ? prompt : 1;
    const held = turn === 0 ? 0 : prompt + turn - 1; // before this turn's pass
    const pairs = held + (stage >= 2 ? fed : 0);
    const emitted = turn + (stage === 5 ? 1 : 0);
    return { step, at, turn, stage, prompt, fed, held, pairs, tokens: prompt + emitted, emitted, stopped: !closed && step > count };
  },

  shown: (n) => ({
    turn: String(n.turn + 1),
    fed: String(n.fed),
    held: String(n.held),
    pairs: String(n.pairs),
    tokens: String(n.tokens),
    emitted: String(n.emitted),
  }),

  draw(n, { closed }) {
    const { prompt, made } = book.data.passage;
    const text = [...prompt, ...made].slice(0, n.tokens);
    const [first, newest] = [n.held, n.held + n.fed]; // what this turn feeds
    const cells = text.map((token, i) => {
      const now = n.stage === 5 ? i === n.tokens - 1 : i >= first && i < newest;
      return `<li class="cell ${now ? "lit" : i < prompt.length ? "done" : "c3"}">${book.escape(book.visible(token))}</li>`;
    });
    const places = [
      [10, 22],
      [148, 22],
      [286, 22],
      [286, 182],
      [148, 182],
      [10, 182],
    ];
    const boxes = this.stages.map((name, i) => {
      const [x, y] = places[i];
      const now = i === n.stage;
      return [
        book.rect(x, y, 104, 44, now ? "lit" : i < n.stage ? "done" : "box", { rx: 6 }),
        book.text(x + 52, y + 27, name, "middle", now ? "strong" : ""),
      ];
    });
    const slots = Array.from({ length: 10 }, (_, i) => {
      const fresh = n.stage === 2 && i >= n.held && i < n.pairs;
      const kind = i >= n.pairs ? "box dashed" : fresh ? "lit" : "c1 box soft";
      const name = i < n.prompt ? `p${i + 1}` : `t${i - n.prompt + 1}`;
      const label = i < n.pairs ? book.text(70.5 + 22 * i, 131, name, "middle", "small") : "";
      return [book.rect(61 + 22 * i, 112, 19, 28, kind, { rx: 2 }), label];
    });
    const chosen = n.stage >= 4 ? `chosen: “${book.visible(made[n.turn])}”` : "";
    const reading = n.stage === 2;
    const back = closed ? "line" : "line faint dashed";
    const svg = book.svg(
      262,
      "Six stages in a circle, from ids by the blocks and the logits to the choice, with the cache in the middle",
      book.arrow(116, 44, 144, 44),
      book.arrow(254, 44, 282, 44),
      book.arrow(370, 68, 370, 178),
      book.arrow(284, 204, 256, 204),
      book.arrow(146, 204, 118, 204),
      closed && n.stage === 0 && n.turn ? book.arrow(40, 180, 40, 70, "line strong") : book.arrow(40, 180, 40, 70, back),
      closed ? "" : [book.line(30, 116, 50, 134, "c2 line strong"), book.line(50, 116, 30, 134, "c2 line strong")],
      book.arrow(322, 68, 286, 112, reading ? "c1 line strong" : "c1 line"),
      book.arrow(290, 126, 336, 70, reading ? "c2 line strong" : "c2 line"),
      book.text(294, 88, "write", "end", reading ? "strong" : ""),
      book.text(320, 114, "read", "start", reading ? "strong" : ""),
      boxes,
      slots,
      book.text(61, 104, "cache: {pairs} pairs", "start", reading ? "strong" : ""),
      book.text(61, 160, "one slot for each position"),
      book.text(200, 252, chosen, "middle", "strong"),
    );
    return `<ol class="cells">${cells.join("")}</ol>${svg}`;
  },

  words(n) {
    if (n.stopped) return "The loop is open. One pass has made {emitted} token, and nothing feeds it back: the text stays at " +
      "{tokens} tokens, and the cache at {pairs} pairs.";
    const fed = n.turn ? "the newest token, {fed} id" : "the prompt, {fed} ids";
    const slots = n.fed === 1 ? "the {fed} new position gets a slot" : "each of the {fed} new positions gets a slot";
    const stages = [
      `Turn {turn} is fed ${fed}. The cache holds {held} pairs.`,
      "Turn {turn}: each id becomes a row of the token table, and its position is added, counted from {held}.",
      `Turn {turn}: ${slots}. Every block writes its key and value there, and reads its own of all {pairs} pairs.`,
      "Turn {turn}: the last position becomes logits, one score for each token of the vocabulary.",
      "Turn {turn}: one token is chosen from the scores, here the best one.",
      "Turn {turn}: the token is appended. The text has {tokens} tokens, {emitted} of them new, and the cache {pairs} pairs.",
    ];
    return stages[n.stage];
  },
});
