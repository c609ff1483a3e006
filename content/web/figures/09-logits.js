"use strict";
book.figure({
  id: "logits",
  number: 9,
  title: "Five raw scores, and how far each is below the largest",
  controls: [book.steps("candidate", "Candidate", 1, 5, 2), book.toggle("raised", "Raise all scores alike")],

  numbers({ candidate, raised }) {
    const shift = raised ? 3 : 0;
    const logits = book.data.candidates.logits.map((x) => x + shift);
    const top = Math.max(...logits);
    const at = candidate - 1;
    return { at, shift, logits, top, gap: top - logits[at], ratio: Math.exp(logits[at] - top) };
  },

  shown: (n) => ({
    ...Object.fromEntries(n.logits.map((x, i) => [`logit${i}`, x.toFixed(1)])),
    logit: n.logits[n.at].toFixed(1),
    top: n.top.toFixed(1),
    gap: n.gap.toFixed(1),
    ratio: n.ratio.toFixed(3),
    shift: n.shift.toFixed(1),
  }),

  draw(n) {
    const { names } = book.data.candidates;
    const x = (logit) => 76 + 36 * logit;
    const y = (i) => 30 + 34 * i;
    const bottom = y(5) - 6;
    const rows = names.map((name, i) => {
      const here = i === n.at;
      return [
        here ? book.rect(2, y(i) - 16, 396, 32, "lit", { rx: 4 }) : "",
        book.text(10, y(i) + 5, name, "start", here ? "strong" : ""),
        book.line(x(0), y(i), x(n.logits[i]), y(i), "c1 line"),
        book.circle(x(n.logits[i]), y(i), 6, "c1"),
        book.text(390, y(i) + 5, `{logit${i}}`, "end", here ? "strong" : ""),
      ];
    });
    const marks = [0, 2, 4, 6].map((mark) => [
      book.line(x(mark), bottom, x(mark), bottom + 5, "axis"),
      book.text(x(mark), bottom + 20, mark, "middle"),
    ]);
    const [from, to] = [x(n.logits[n.at]), x(n.top)];
    return book.svg(
      262,
      "Five scores as points on one scale; a line joins the chosen one to the largest",
      rows,
      book.line(to, y(0), to, bottom, "c2 line dashed"),
      n.gap ? book.path(`M${from + 8} ${y(n.at)}L${to} ${y(n.at)}`, "c2 line strong") : "",
      book.line(x(0), bottom, x(7.4), bottom, "axis"),
      marks,
      book.text(200, 250, n.gap ? "{gap} below the largest: exp(−{gap}) = {ratio}" : "the largest of them", "middle", "strong"),
    );
  },

  words(n) {
    const name = book.data.candidates.names[n.at];
    const leader = book.data.candidates.names[n.logits.indexOf(n.top)];
    const below = `The word “${name}” has a score of {logit}, which is {gap} below the {top} of “${leader}”.`;
    const first = `The word “${name}” has the largest score, {top}. Softmax compares each other word with it.`;
    const place = n.gap ? `${below} Softmax will make it {ratio} times as probable.` : first;
    const raised = "All scores are {shift} higher than they were. No difference has changed, so no probability will.";
    return n.shift ? `${place} ${raised}` : place;
  },
});
