"use strict";
{
  // name; what it gives back, in letters and in numbers; height; what it does in the embedded GPT-2, and in any Llama
  const STAGES = [
    ["Tokenize", "ids [T]", "{tokens}", 34, "the text is cut into {tokens} tokens, with ids", "the text is cut into tokens"],
    [
      "Embed",
      "stream [T, d]",
      "{tokens} × {width}",
      34,
      "each id selects a row of {width} numbers, and the row of its position is added. Position rows are added here and nowhere else",
      "each id selects a row of the token table. Nothing is added for its position",
    ],
    [
      "L blocks",
      "stream [T, d]",
      "{tokens} × {width}",
      100,
      "{layers} blocks run one after another, all of one form, each with weights of its own. The stream keeps its shape",
      "blocks of one form run one after another. In each, attention turns queries and keys by angles that depend on the position",
    ],
    [
      "Final norm",
      "stream [T, d]",
      "{tokens} × {width}",
      34,
      "each of the {tokens} rows is normalised by itself, and keeps its {width} numbers",
      "each position’s row is normalised by itself, and keeps its width",
    ],
    [
      "Unembed",
      "logits [T, V]",
      "{tokens} × {vocabulary}",
      34,
      "each of the {tokens} rows is multiplied with all {vocabulary} rows of the token table, which scores each as the next",
      "each row is multiplied with all rows of an output table, a score for each token of the vocabulary as the next one",
    ],
    [
      "Read off",
      "one token",
      "",
      34,
      "of the last position’s {vocabulary} scores the largest is that of “{next}”, with a probability of {chance} per cent",
      "of the last position’s scores one is read off, the largest say, and its token is the next",
    ],
  ];

  book.figure({
    id: "stages",
    number: 2,
    title: "The six stages of a pass, and where positions enter",
    controls: [
      book.steps("stage", "Stage", 1, STAGES.length, 1),
      book.choice("positions", "Positions enter", [["table", "as in GPT-2"], ["rope", "as in Llama (RoPE)"]], "table"),
    ],

    numbers: ({ stage, positions }) => ({ stage, positions, ...book.data.pass }),

    shown: (n) => ({
      stage: String(n.stage),
      tokens: book.int(n.tokens),
      width: book.int(n.width),
      layers: book.int(n.layers),
      vocabulary: book.int(n.vocabulary),
      chance: book.fixed(n.percent, 1),
      next: book.visible(n.next),
    }),

    draw(n) {
      let y = 34;
      const [left, right] = [118, 262];
      const [middle, table] = [(left + right) / 2, n.positions === "table"];
      const parts = [book.text(middle, 14, `text${table ? `: “${n.text}”` : ""}`, "middle"), book.arrow(middle, 19, middle, 33)];
      const at = STAGES.map(([name, gives, size, height], i) => {
        const [from, now] = [y, i + 1 === n.stage];
        const kind = now ? "lit" : i + 1 < n.stage ? "done" : "box";
        if (i === 2) {
          const behind = kind === "lit" ? "done" : kind;
          for (const shift of [12, 6]) parts.push(book.rect(left + shift, from - shift, right - left, height, behind, { rx: 5 }));
        }
        parts.push(
          book.rect(left, from, right - left, height, kind, { rx: 5 }),
          book.text(middle, from + (i === 2 ? 22 : height / 2 + 5), name, "middle", now ? "strong" : ""),
          book.arrow(middle, from + height, middle, from + height + 24 + (i === 1 ? 12 : 0)),
          book.text(middle + 10, from + height + 16, table && size ? `${gives} = ${size}` : gives),
        );
        if (i === 2) {
          parts.push(
            book.rect(left + 12, from + 32, right - left - 24, 26, "c1 box soft", { rx: 3 }),
            book.text(middle, from + 50, "attention", "middle"),
            book.rect(left + 12, from + 64, right - left - 24, 26, "c3 box soft", { rx: 3 }),
            book.text(middle, from + 82, "feed-forward", "middle"),
          );
        }
        y = from + height + 26 + (i === 1 ? 12 : 0);
        return from;
      });
      const target = table ? at[1] + 17 : at[2] + 45;
      parts.push(
        book.rect(4, target - 23, 88, 46, "c2 box soft", { rx: 5 }),
        book.text(48, target - 4, "position", "middle"),
        book.text(48, target + 13, table ? "rows" : "angles", "middle"),
        book.arrow(92, target, table ? left - 2 : left + 10, target, "c2 line"),
        book.text(102, target - 8, table ? "+" : "⟳", "middle", "strong"),
      );
      return book.svg(y + 2, "Six boxes from text to one token, the third a stack; an arrow brings the positions in", parts);
    },

    words(n) {
      const [name, , , , here, llama] = STAGES[n.stage - 1];
      const called = { 3: "the blocks", 5: "unembed (the output projection)" }[n.stage] ?? name.toLowerCase();
      return `Stage {stage}, ${called}: ${n.positions === "table" ? here : llama}.`;
    },
  });
}
