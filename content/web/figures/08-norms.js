"use strict";
book.figure({
  id: "norms",
  number: 8,
  title: "How many norms stand on the stream’s own path",
  controls: [
    book.choice("place", "Norms", [["pre", "pre-norm"], ["post", "post-norm"]], "pre"),
    book.range("layers", "Layers", 1, 48, 12),
  ],

  numbers({ place, layers }) {
    const [blocks, final] = place === "post" ? [2 * layers, 0] : [0, 1];
    return { place, layers, blocks, final, path: blocks + final, branches: place === "post" ? 0 : 2 * layers };
  },

  shown: (n) => Object.fromEntries(["layers", "blocks", "path", "branches"].map((key) => [key, String(n[key])])),

  draw(n) {
    const post = n.place === "post";
    const [line, branch] = [54, 122];
    const norm = (x, y, lit) => [
      book.rect(x - 23, y - 13, 46, 26, lit ? "lit" : "c3 box soft", { rx: 4 }),
      book.text(x, y + 5, "norm", "middle", lit ? "strong" : ""),
    ];
    const half = (from, ...name) => {
      const [join, box, wide] = [from + (post ? 112 : 148), from + (post ? 56 : 102), 74];
      return [
        book.circle(from, line, 4, "c1"),
        book.path(`M${from} ${line}V${branch}H${post ? box - wide / 2 : from + 14}`, "line"),
        book.path(`M${box + wide / 2} ${branch}H${join}`, "line"),
        book.arrow(join, branch, join, line + 13, "line"),
        post ? "" : [book.line(from + 60, branch, box - wide / 2, branch, "line"), norm(from + 37, branch, false)],
        book.rect(box - wide / 2, branch - 20, wide, 40, "box", { rx: 4 }),
        name.map((word, i) => book.text(box, branch + 5 + 16 * (i - (name.length - 1) / 2), word, "middle")),
        book.circle(join, line, 11, "box"),
        book.text(join, line + 5, "+", "middle", "strong"),
        post ? norm(join + 42, line, true) : "",
      ];
    };
    const [start, end, y] = [14, 352, 216];
    const marks = Array.from({ length: n.blocks }, (_, i) => {
      const x = start + ((end - start) * (i + 0.5)) / n.blocks;
      return book.line(x, y - 11, x, y + 11, "c2 line");
    });
    return book.svg(
      262,
      "Above, one block: a line with two branches, and norms on one or the other. Below, the whole path with its norms marked",
      book.text(6, 18, "one block", "start", "strong"),
      book.arrow(4, line, 396, line, "c1 line strong"),
      half(14, "attention"),
      half(208, "feed-", "forward"),
      book.text(6, 184, `the whole path, {layers} layer${n.layers === 1 ? "" : "s"}`, "start", "strong"),
      book.line(start - 10, y, 396, y, "c1 line strong"),
      marks,
      n.final ? book.line(end + 14, y - 11, end + 14, y + 11, "c2 line strong") : "",
      n.final ? book.text(end + 14, y + 30, "final", "middle") : "",
      book.text(start - 10, y + 30, "embedding"),
      book.text(200, y + 30, "norms on the path: {path}", "middle", "strong"),
    );
  },

  words(n) {
    const layers = `{layers} layer${n.layers === 1 ? "" : "s"}`;
    if (n.place === "post") {
      const none = "The original post-norm model has no final one";
      return `With post-norm and ${layers}, the stream passes {blocks} norms, two in each block. ${none}, so the count is {path}.`;
    }
    const final = "It passes the final one, so the count is {path}, whatever the depth";
    return `With pre-norm and ${layers}, the stream passes {blocks} norms in the blocks: {branches} stand on branches. ${final}.`;
  },
});
