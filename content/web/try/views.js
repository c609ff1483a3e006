"use strict";
/* What the page "Try it" shows, as markup made from numbers: nothing here computes with the model or touches the page. Every text of the
   reader is escaped. A token's text is `lab.tokenizer.text` of its id, which shows its blanks. `book` is figures.js. */

const views = {
  /** A token's text within quotation marks, for a sentence. */
  quoted: (text) => `“${text}”`,

  percent: (p) => `${(100 * p).toFixed(2)}%`,

  /** A size to three significant digits, never in powers of ten. */
  size: (x) => (x === 0 ? "0" : x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x >= 1 ? x.toFixed(2) : x.toFixed(3)),

  /** A change of the logits as Chapter 4's table has it: an exact 0 is told from a small change. */
  change: (x) => (x === 0 ? "0" : x < 0.005 ? "<0.01" : x.toFixed(2)),

  /** texts: one a token; ids [T]. A list of tokens, each over its id. */
  tokens: (texts, ids) =>
    `<ol class="try-chips" tabindex="0" aria-label="Tokens and their ids">${ids
      .map((id, i) => `<li><span class="token">${book.escape(texts[i])}</span> <span class="id">${id}</span></li>`)
      .join("")}</ol>`,

  /** rows: [{text, id, p}], best first. A table with a bar for each probability. */
  next: (rows) => `<div class="scroll" tabindex="0" role="region" aria-label="Next tokens"><table class="try-next">
<thead><tr><th scope="col">token</th><th scope="col">id</th><th scope="col">probability</th><td></td></tr></thead>
<tbody>${rows
    .map(
      ({ text, id, p }) =>
        `<tr><th scope="row"><span class="token">${book.escape(text)}</span></th><td>${id}</td><td>${views.percent(p)}</td>` +
        `<td class="bar"><span style="width:${(100 * p).toFixed(2)}%"></span></td></tr>`,
    )
    .join("")}</tbody></table></div>`,

  /** A table of one cell for each row and column, to be walked with the arrow keys (see grids.js).

      name: what it is. rows, columns: [{at, text}], position and token. cell(i, j): {value, label, kind, inner} of a row's and a column's
      place in these lists: the full number, the number in words, a class, and markup within. */
  grid({ name, rows, columns, cell, kind = "" }) {
    const head = ({ at, text }, scope) =>
      `<th scope="${scope}"><span class="at">${at}</span> <span class="token">${book.escape(text)}</span></th>`;
    const body = rows.map((row, i) => {
      const cells = columns.map((_, j) => {
        const { value, label, kind: look = "", inner = "" } = cell(i, j);
        const first = i === 0 && j === 0 ? 0 : -1;
        return `<td tabindex="${first}" data-row="${i}" data-column="${j}" data-value="${value}" aria-label="${book.escape(label)}" class="${look}">${inner}</td>`;
      });
      return `<tr>${head(row, "row")}${cells.join("")}</tr>`;
    });
    return `<div class="scroll"><table class="try-grid ${kind}" role="grid" aria-readonly="true" aria-label="${book.escape(name)}">
<thead><tr><td></td>${columns.map((column) => head(column, "col")).join("")}</tr></thead><tbody>${body.join("")}</tbody></table></div>`;
  },

  /** One head large: weights [T, T] in a flat array, row i from i * T. A square's area is its weight; what the mask hides is hatched. */
  attention(weights, labels, layer, head, mask) {
    const T = labels.length;
    return views.grid({
      name: `Attention weights of layer ${layer}, head ${head}: rows read, columns are read`,
      rows: labels,
      columns: labels,
      kind: "squares",
      cell(i, j) {
        const value = weights[i * T + j];
        const hidden = mask && j > i;
        const side = (100 * Math.sqrt(value)).toFixed(1);
        return {
          value,
          label: hidden ? "hidden, 0" : value.toFixed(3),
          kind: hidden ? "hidden" : "",
          inner: value > 0 ? `<i style="width:${side}%;height:${side}%"></i>` : "",
        };
      },
    });
  },

  /** A small picture of one head's weights [T, T]: the larger the weight, the fuller the cell. */
  small(weights, T) {
    const cells = [];
    for (let i = 0; i < T; i++) {
      for (let j = 0; j < T; j++) {
        const side = Math.sqrt(weights[i * T + j]);
        if (side < 0.1) continue; // a hundredth of the weight, which would be no pixel here
        const [x, y] = [j + (1 - side) / 2, i + (1 - side) / 2].map((c) => c.toFixed(2));
        cells.push(`M${x} ${y}h${side.toFixed(2)}v${side.toFixed(2)}h-${side.toFixed(2)}z`);
      }
    }
    return `<svg viewBox="0 0 ${T} ${T}" aria-hidden="true"><rect width="${T}" height="${T}" class="ground"/><path d="${cells.join("")}" class="c1"/></svg>`;
  },

  /** Buttons for the heads of a layer, attention [h, T, T] flat; the pressed one is the head shown large. */
  heads(attention, h, T, pressed) {
    const button = (head) =>
      `<button type="button" data-head="${head}" aria-pressed="${head === pressed}">${views.small(attention.subarray(head * T * T, (head + 1) * T * T), T)}<span>head ${head}</span></button>`;
    return Array.from({ length: h }, (_, head) => button(head)).join("");
  },

  /** sizes: for each of L + 1 layers the RMS of each position [T]; whole, rest: for each layer the RMS over all positions, and without
      the first. A table, with a bar in each cell as long as its size is of the largest. */
  sizes(sizes, labels, whole, rest) {
    const top = Math.max(...sizes.flatMap((row) => [...row]), ...whole);
    const cell = (x, name) =>
      x === null
        ? "<td>–</td>"
        : `<td data-value="${x}"${name ? ` data-name="${name}"` : ""}><span class="number">${views.size(x)}</span><span class="bar"><span style="width:${((100 * x) / top).toFixed(1)}%"></span></span></td>`;
    const head = ({ at, text }) =>
      `<th scope="col"><span class="at">${at}</span> <span class="token">${book.escape(text)}</span></th>`;
    return `<div class="scroll" tabindex="0" role="region" aria-label="RMS of the stream by layer and position"><table class="try-sizes">
<thead><tr><th scope="col">after layer</th><th scope="col">all</th><th scope="col">without position 0</th>${labels.map(head).join("")}</tr></thead>
<tbody>${sizes
      .map(
        (row, layer) =>
          `<tr><th scope="row">${layer}</th>${cell(whole[layer], "whole")}${cell(rest[layer], "rest")}${[...row].map((x) => cell(x)).join("")}</tr>`,
      )
      .join("")}</tbody></table></div>`;
  },

  /** changes(i, j): the largest change at position i when token j changes, or null where it is not computed yet; columns: places that change. */
  influence(changes, labels, columns, mask) {
    return views.grid({
      name: "Largest change of a logit: rows are positions, columns the token that changes",
      rows: labels,
      columns: columns.map((j) => labels[j]),
      kind: "numbers",
      cell(i, place) {
        const j = columns[place];
        const x = changes(i, j);
        if (x === null) return { value: "", label: "not computed yet", inner: "…" };
        return { value: x, label: views.change(x), kind: x === 0 ? "zero" : i === j ? "self" : mask ? "" : j > i ? "leak" : "", inner: views.change(x) };
      },
    });
  },

  /** The text so far: the reader's own, and what the model added. Both are decoded together, so that a character of several tokens is whole. */
  passage: (prompt, added) => `<span class="prompt">${book.escape(prompt)}</span><span class="added">${book.escape(added)}</span>`,

  /** rows: [{text, id, plain, p, taken}]: what a step had to choose from. plain: the probability before the filters, p the one in the draw. */
  candidates: (rows, temperature) => `<div class="scroll" tabindex="0" role="region" aria-label="What the last step had to choose from"><table>
<thead><tr><th scope="col">candidate</th><th scope="col">id</th><th scope="col">at temperature ${temperature}</th><th scope="col">in the draw</th><th scope="col">taken</th></tr></thead>
<tbody>${rows
    .map(
      ({ text, id, plain, p, taken }) =>
        `<tr><th scope="row"><span class="token">${book.escape(text)}</span></th><td>${id}</td><td>${views.percent(plain)}</td>` +
        `<td>${p > 0 ? views.percent(p) : "cut"}</td><td>${taken ? "yes" : ""}</td></tr>`,
    )
    .join("")}</tbody></table></div>`,

  /** sides: [{name, positions, passes, milliseconds, text}], without the cache and with it. */
  sides: (sides) =>
    `<div class="try-sides">${sides
      .map(
        ({ name, key, tokens, positions, milliseconds, text }) => `<section data-side="${key}"><h3>${name}</h3>
<dl><div><dt>new tokens</dt><dd data-name="tokens">${tokens}</dd></div>
<div><dt>positions processed</dt><dd data-name="positions">${book.int(positions)}</dd></div>
<div><dt>milliseconds</dt><dd data-name="milliseconds">${book.int(milliseconds)}</dd></div></dl>
<p class="try-passage" tabindex="0" role="region" aria-label="${name}: the new text">${book.escape(text)}</p></section>`,
      )
      .join("")}</div>`,
};

if (typeof module !== "undefined") module.exports = views;
