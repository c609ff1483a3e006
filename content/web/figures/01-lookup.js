"use strict";
book.figure({
  id: "lookup",
  number: 1,
  title: "A word, its id, and the row that the id selects",
  controls: [book.range("position", "Position", 0, 4, 0)],

  numbers({ position }) {
    const { words, table, tokenizers } = book.data.lookup;
    const known = table.map(({ word }) => word);
    const ids = words.map((word) => known.indexOf(word));
    return { position, ids, id: ids[position], twin: ids.findIndex((id, i) => id === ids[position] && i !== position), tokenizers };
  },

  shown(n) {
    const found = { position: n.position, id: n.id };
    n.ids.forEach((id, i) => Object.assign(found, { [`position${i}`]: i, [`id${i}`]: id }));
    if (n.twin >= 0) found.twin = n.twin;
    book.data.lookup.table.forEach(({ row }, id) => {
      found[`row${id}`] = id;
      row.forEach((x, j) => (found[`row${id}.${j}`] = x.toFixed(1).replace("-", "−")));
    });
    n.tokenizers.forEach(({ tokens }, k) => {
      found[`tokens${k}`] = tokens.length;
      tokens.forEach((token, i) => (found[`token${k}.${i}`] = token.id));
    });
    return Object.fromEntries(Object.entries(found).map(([key, value]) => [key, String(value)]));
  },

  draw(n) {
    const { words, table } = book.data.lookup;
    const x = (i) => 94 + 68 * i;
    const top = 154;
    const y = (id) => top + 30 * id;
    const cells = words.map((word, i) => {
      const now = i === n.position;
      const kind = now ? "lit" : i === n.twin ? "c2 box dashed" : "box";
      return [
        book.text(x(i), 14, `{position${i}}`, "middle"),
        book.rect(x(i) - 30, 22, 60, 30, kind, { rx: 4 }),
        book.text(x(i), 42, word, "middle", now ? "strong" : ""),
        book.text(x(i), 74, `{id${i}}`, "middle", now ? "strong" : ""),
      ];
    });
    const rows = table.map(({ word, row }, id) => {
      const now = id === n.id;
      const bold = now ? "strong" : "";
      return [
        book.rect(64, y(id), 330, 26, now ? "lit" : "box", { rx: 3 }),
        book.text(80, y(id) + 18, `{row${id}}`, "middle", bold),
        book.text(100, y(id) + 18, word, "start", bold),
        row.map((_, j) => book.text(202 + 60 * j, y(id) + 18, `{row${id}.${j}}`, "end", bold)),
      ];
    });
    const at = y(n.id) + 13;
    const real = n.tokenizers.map(({ name, tokens }, k) => {
      const list = tokens.map((token, i) => {
        const kind = token.word === n.position ? "lit strong" : "";
        const text = book.escape(book.visible(token.piece));
        return `<li class="cell ${kind}">${text}<br/><span class="small">{token${k}.${i}}</span></li>`;
      });
      const above = `<p class="cells"><span>The same words in ${name}: {tokens${k}} tokens</span></p>`;
      return `${above}<ol class="cells">${list.join("")}</ol>`;
    });
    return (
      book.svg(
        y(table.length) + 4,
        "Five words with their ids; a line leads from the chosen word’s id to one row of a table of four rows",
        book.text(2, 14, "position"),
        book.text(2, 42, "word"),
        book.text(2, 74, "id"),
        cells,
        book.path(`M${x(n.position)} 82V100H30V${at}`, "c2 line"),
        book.arrow(30, at, 60, at, "c2 line"),
        book.text(80, top - 12, "id", "middle"),
        book.text(100, top - 12, "word"),
        book.text(382, top - 12, "the toy table’s row", "end"),
        rows,
      ) + real.join("")
    );
  },

  words(n) {
    const word = `“${book.data.lookup.words[n.position]}”`;
    const same = n.twin < 0 ? "" : ", the same row as at position {twin}";
    const real = n.tokenizers.map(({ name, tokens }, k) => {
      const mine = tokens.map((token, i) => [token, i]).filter(([token]) => token.word === n.position);
      const list = mine.map(([token, i]) => `“${book.escape(book.visible(token.piece))}” with id {token${k}.${i}}`);
      return `in ${name} it is ${list.join(" and ")}`;
    });
    const toy = `Its id in the toy table is {id}, which selects row {id}${same}`;
    return `Position {position} has the word ${word}. ${toy}. With real tokenizers, ${real.join(", and ")}.`;
  },
});
