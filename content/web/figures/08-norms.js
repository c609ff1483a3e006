"use strict";
book.figure({
  id: "norms",
  number: 8,
  title: "How many norms stand on the stream’s own path",
  controls: [
    book.choice("place", "Norms", [["pre", "pre-norm: on the branches"], ["post", "post-norm: on the stream"]], "pre"),
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
    const norm = (x, y, lit) => [book.rect(x - 23, y - 13, 46, 26, lit ? "lit" : "c3 box soft", { rx: 4 }), book.text(x, y + 5, "norm", "middle", lit ? "strong" : "")];
    const half = (from, ...name) => {
      const [join, box, wide] = [from + (post ? 112 : 148), from + (post ? 56 : 102), 68];
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
      "Above, one block: the stream is a horizontal line with two branches, and the norms stand on it or on the branches. Below, the whole path with a mark for each norm on it",
      book.text(6, 18, "one block", "start", "strong"),
      book.arrow(4, line, 396, line, "c1 line strong"),
      half(14, "attention"),
      half(208, "feed-", "forward"),
      book.text(6, 184, "the whole path, {layers} layers", "start", "strong"),
      book.line(start - 10, y, 396, y, "c1 line strong"),
      marks,
      n.final ? [book.line(end + 14, y - 11, end + 14, y + 11, "c2 line strong"), book.text(end + 14, y + 30, "final", "middle")] : "",
      book.text(start - 10, y + 30, "embedding"),
      book.text(200, y + 30, "norms on the path: {path}", "middle", "strong"),
    );
  },

  words(n) {
    if (n.place === "post")
      return "With post-norm and {layers} layers, the stream passes {blocks} norms, two in each block. The original post-norm model has no final one, so the count is {path}.";
    return "With pre-norm and {layers} layers, the stream passes {blocks} norms in the blocks: their {branches} norms all stand on branches. It passes the final one, so the count is {path}, whatever the depth.";
  },
});
