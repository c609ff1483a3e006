"use strict";
{
  const minus = (x) => String(x).replace("-", "−");

  book.figure({
    id: "add-or-replace",
    number: 4,
    title: "What each block wrote, and what is left of it in the stream",
    controls: [
      book.choice("move", "Each block", [["add", "adds to the stream"], ["replace", "replaces the stream"]], "add"),
      book.steps("blocks", "Blocks that have run", 0, 3, 3),
    ],

    numbers({ move, blocks }) {
      const written = book.data.writes.slice(0, blocks + 1);
      const kept = written.map((_, i) => move === "add" || i === blocks);
      const stream = written[0].map((_, j) => written.reduce((sum, row, i) => sum + (kept[i] ? row[j] : 0), 0));
      return { move, blocks, written, kept, stream, left: kept.filter(Boolean).length };
    },

    shown(n) {
      const found = { blocks: n.blocks, slots: n.stream.length, wrote: n.written.length, gone: n.written.length - n.left };
      n.written.forEach((row, i) => {
        if (i) found[`block${i}`] = i;
        row.forEach((x, j) => (found[`wrote${i}.${j}`] = x));
      });
      n.stream.forEach((x, j) => (found[`stream${j}`] = x));
      return Object.fromEntries(Object.entries(found).map(([key, value]) => [key, minus(value)]));
    },

    draw(n) {
      const [left, pitch, tall] = [90, 47, 40];
      const y = (i) => 28 + tall * i;
      const bottom = y(4) + 16;
      const colours = ["c5", "c1", "c3", "c4"];
      const rows = n.written.map((row, i) => [
        book.text(2, y(i) + 20, i ? `block {block${i}}` : "embedding"),
        row.map((_, j) => [
          book.rect(left + pitch * j, y(i), pitch - 8, 30, n.kept[i] ? `${colours[i]} box soft` : "box dashed", { rx: 4 }),
          n.kept[i] ? book.text(left + pitch * j + 19.5, y(i) + 20, `{wrote${i}.${j}}`, "middle") : "",
        ]),
        book.text(left + 4 * pitch + 8, y(i) + 20, n.kept[i] ? "✓ in the stream" : "✕ gone"),
      ]);
      const sum = n.move === "add" ? "added up" : "the last only";
      return book.svg(
        bottom + 48,
        "Four numbers for the embedding and for each block that has run; below them the stream, four numbers wide",
        book.text(2, 14, "wrote"),
        rows,
        book.line(left - 4, bottom - 9, left + 4 * pitch - 4, bottom - 9, "axis"),
        book.text(2, bottom + 26, "stream", "start", "strong"),
        n.stream.map((_, j) => [
          book.rect(left + pitch * j, bottom + 4, pitch - 8, 34, "lit", { rx: 4 }),
          book.text(left + pitch * j + 19.5, bottom + 26, `{stream${j}}`, "middle", "strong"),
        ]),
        book.text(left + 4 * pitch + 8, bottom + 26, `= ${sum}`),
      );
    },

    words(n) {
      const shape = "The stream is {slots} numbers wide, as it was at the start";
      if (n.blocks === 0) return "No block has run. The stream is the embedding, {slots} numbers wide.";
      const ran = `After {blocks} block${n.blocks === 1 ? "" : "s"}`;
      if (n.move === "add") return `${ran}, the stream is the sum of {wrote} rows: the embedding and all written. ${shape}.`;
      const gone = `and {gone} of {wrote} rows ${n.blocks === 1 ? "has" : "have"} left no trace in it`;
      return `${ran}, the stream is what the last one wrote, ${gone}. ${shape}, so that no check of shapes would notice.`;
    },
  });
}
