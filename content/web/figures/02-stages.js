"use strict";
{
  // name, what it gives back and its shape, height, and what it does: markup with {key}
  const STAGES = [
    ["Tokenize", "ids", "[T]", 34, "the text is cut into {tokens} tokens, each with an id"],
    ["Embed", "stream", "[T, d]", 34, "each id selects a row of {width} numbers; with {tokens} tokens the stream is {tokens} rows of {width}"],
    ["N blocks", "stream", "[T, d]", 100, "{layers} blocks run one after another, each with weights of its own; the stream keeps its shape"],
    ["Final norm", "stream", "[T, d]", 34, "each position’s row is normalised by itself, and the shape stays"],
    ["Unembed", "logits", "[T, V]", 34, "each row is compared with all rows of the token table, which gives {tokens} rows of {vocabulary} scores"],
    ["Read off", "one token", "", 34, "from the last position’s scores the best next token is"],
  ];

  book.figure({
    id: "stages",
    number: 2,
    title: "The six stages of a pass",
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
    }),

    draw(n) {
      let y = 34;
      const [left, right] = [132, 274];
      const parts = [book.text(203, 14, "text", "middle"), book.arrow(203, 19, 203, 33)];
      const at = STAGES.map(([name, gives, shape, height], i) => {
        const [from, now] = [y, i + 1 === n.stage];
        const kind = now ? "lit" : i + 1 < n.stage ? "done" : "box";
        if (i === 2) {
          for (const shift of [12, 6]) parts.push(book.rect(left + shift, from - shift, right - left, height, kind === "lit" ? "done" : kind, { rx: 5 }));
        }
        parts.push(
          book.rect(left, from, right - left, height, kind, { rx: 5 }),
          book.text((left + right) / 2, from + (i === 2 ? 22 : height / 2 + 5), name, "middle", now ? "strong" : ""),
          book.arrow(203, from + height, 203, from + height + 25 + (i === 1 ? 12 : 0)),
          book.text(212, from + height + 17, `${gives} ${shape}`, "start", "small"),
        );
        if (i === 2) {
          parts.push(
            book.rect(left + 12, from + 32, right - left - 24, 26, "c1 box soft", { rx: 3 }),
            book.text(203, from + 50, "attention", "middle"),
            book.rect(left + 12, from + 64, right - left - 24, 26, "c3 box soft", { rx: 3 }),
            book.text(203, from + 82, "feed-forward", "middle"),
          );
        }
        y = from + height + 26 + (i === 1 ? 12 : 0);
        return from;
      });
      const table = n.positions === "table";
      const target = table ? at[1] + 17 : at[2] + 45;
      parts.push(
        book.rect(4, target - 23, 88, 46, "c2 box soft", { rx: 5 }),
        book.text(48, target - 4, "position", "middle"),
        book.text(48, target + 13, table ? "rows" : "angles", "middle"),
        book.arrow(92, target, table ? left - 2 : left + 10, target, "c2 line"),
        book.text(112, target - 8, table ? "+" : "⟳", "middle", "strong"),
      );
      return book.svg(y - 6, "Six boxes from text to one token, the third of them a stack of blocks; an arrow brings the positions in", parts);
    },

    words(n) {
      const [name, , , , what] = STAGES[n.stage - 1];
      const found = n.stage === 6 ? ` “${book.escape(book.visible(n.next))}”, with a probability of {chance} per cent` : "";
      const enter = {
        table: " The position rows are added here, before the first block, and nowhere else.",
        rope: " A Llama adds nothing for positions here; the rows go on as they are.",
      }[n.positions];
      const turned = " In a Llama each block’s attention turns queries and keys by angles that depend on the position.";
      const more = n.stage === 2 ? enter : n.stage === 3 && n.positions === "rope" ? turned : "";
      return `Stage {stage}, ${name.toLowerCase().replace("n blocks", "the blocks")}: ${what}${found}.${more}`;
    },
  });
}
