"use strict";
/* What the page "Try it" shows, as markup made from numbers. Nothing here computes with the model or touches the page, and every
   text of the reader is escaped. A token's text is `lab.tokenizer.text` of its id, which shows its blanks. `book` is figures.js. */

const views = {
  /** A token's text within quotation marks, for a sentence. */
  quoted: (text) => `“${text}”`,
  percent: (p) => `${(100 * p).toFixed(2)}%`,
  /** A size to three digits. */
  size: (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x >= 1 ? x.toFixed(2) : x.toFixed(3)),
  /** A change of the logits as Chapter 4's table has it; an exact 0 is told from a small change. */
  change: (x) => (x === 0 ? "0" : x < 0.005 ? "<0.01" : x.toFixed(2)),

  token: (text) => `<span class="token">${book.escape(text)}</span>`,
  /** The head of a row or a column: a position and its token; and what the token becomes, where it is replaced. */
  head({ at, text, becomes }, scope) {
    const other = becomes === undefined ? "" : ` → ${views.token(becomes)}`;
    return `<th scope="${scope}"><span class="at">${at}</span> ${views.token(text)}${other}</th>`;
  },
  bar: (share) => `<span class="bar"><span style="width:${(100 * share).toFixed(2)}%"></span></span>`,
  /** A box that is as wide as the page, and scrolls if what is in it is wider. */
  scroll: (label, inner) => `<div class="scroll" tabindex="0" role="region" aria-label="${label}">${inner}</div>`,

  /** heads: markup of <th>; rows: a list of markup of cells each, the row's head first. */
  table(kind, heads, rows, more = {}) {
    const body = rows.map((cells) => `<tr>${cells.join("")}</tr>`).join("");
    const head = `<thead><tr>${heads.join("")}</tr></thead>`;
    return `<table${book.attributes({ class: kind, ...more })}>${head}<tbody>${body}</tbody></table>`;
  },

  columns: (names) => names.map((name) => `<th scope="col">${name}</th>`),

  // --------------------------------------------------------------------------------------------------------------- the parts

  /** texts, ids [T]: each token over its id. */
  tokens(texts, ids) {
    const chips = ids.map((id, i) => `<li>${views.token(texts[i])} <span class="id">${id}</span></li>`);
    return `<ol class="try-chips" tabindex="0" aria-label="Tokens and their ids">${chips.join("")}</ol>`;
  },

  /** rows: [{text, id, p}], best first. */
  next(rows) {
    const cells = ({ text, id, p }) => [
      `<th scope="row">${views.token(text)}</th>`,
      `<td>${id}</td>`,
      `<td>${views.percent(p)}</td>`,
      `<td class="track">${views.bar(p)}</td>`,
    ];
    const heads = [...views.columns(["token", "id", "probability"]), "<td></td>"];
    return views.scroll("The most probable next tokens", views.table("try-next", heads, rows.map(cells)));
  },

  /** A table that is walked with the arrow keys (see work.js).
      name: what it is. rows, columns: [{at, text}]. cell(i, j), of a row's and a column's place in these lists: {value, the whole
      number; label, it in words; kind, a class; inner, markup}. */
  grid({ name, rows, columns, cell, kind }) {
    const one = (i, j) => {
      const { value, label, kind: look = "", inner = "" } = cell(i, j);
      const walk = `tabindex="${i || j ? -1 : 0}" data-row="${i}" data-column="${j}"`;
      return `<td ${walk} data-value="${value}" aria-label="${book.escape(label)}" class="${look}">${inner}</td>`;
    };
    const heads = ["<td></td>", ...columns.map((column) => views.head(column, "col"))];
    const body = rows.map((row, i) => [views.head(row, "row"), ...columns.map((_, j) => one(i, j))]);
    const table = views.table(`try-grid ${kind}`, heads, body, { role: "grid", "aria-readonly": "true", "aria-label": name });
    return `<div class="scroll">${table}</div>`;
  },

  /** One head large. weights [T * T], row i from i * T: a square's area is its weight, and what the mask hides is hatched. */
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
        const side = `${(100 * Math.sqrt(value)).toFixed(1)}%`;
        return {
          value,
          label: hidden ? "hidden, 0" : value.toFixed(3),
          kind: hidden ? "masked" : "",
          inner: value > 0 ? `<i style="width:${side};height:${side}"></i>` : "",
        };
      },
    });
  },

  /** A small picture of one head's weights [T * T], in the same squares. */
  small(weights, T) {
    const squares = [];
    for (let i = 0; i < T; i++) {
      for (let j = 0; j < T; j++) {
        const side = Math.sqrt(weights[i * T + j]);
        if (side < 0.1) continue; // less than a pixel here
        const [x, y, s] = [j + (1 - side) / 2, i + (1 - side) / 2, side].map((c) => c.toFixed(2));
        squares.push(`M${x} ${y}h${s}v${s}h-${s}z`);
      }
    }
    const ground = `<rect width="${T}" height="${T}" class="ground"/>`;
    return `<svg viewBox="0 0 ${T} ${T}" aria-hidden="true">${ground}<path d="${squares.join("")}" class="c1"/></svg>`;
  },

  /** Buttons for the heads of a layer, attention [h * T * T]; the pressed one is the head shown large. */
  heads(attention, h, T, pressed) {
    const button = (head) => {
      const picture = views.small(attention.subarray(head * T * T, (head + 1) * T * T), T);
      const state = `data-head="${head}" aria-pressed="${head === pressed}"`;
      return `<button type="button" ${state}>${picture}<span>head ${head}</span></button>`;
    };
    return Array.from({ length: h }, (_, head) => button(head)).join("");
  },

  /** rows: for each layer, the embedding first, {sizes: RMS of each position [T], whole: over all of them, rest: without the first,
      null where there is no other}. A bar is as long as its size is of the largest. */
  sizes(rows, labels) {
    const top = Math.max(...rows.flatMap(({ sizes }) => sizes));
    const cell = (x, name) => {
      if (x === null) return "<td>none</td>";
      return `<td data-value="${x}" data-name="${name}"><span class="number">${views.size(x)}</span>${views.bar(x / top)}</td>`;
    };
    const body = rows.map(({ sizes, whole, rest }, layer) => [
      `<th scope="row">${layer ? `layer ${layer - 1}` : "embedding"}</th>`,
      cell(whole, "whole"),
      cell(rest, "rest"),
      ...sizes.map((x, t) => cell(x, t)),
    ]);
    const whole = views.columns(["stream after", "all", "without position 0"]);
    const table = views.table("try-sizes", [...whole, ...labels.map((label) => views.head(label, "col"))], body);
    return views.scroll("RMS of the stream by layer and position", table);
  },

  /** changes(i, j): the largest change at position i when token j is another, null where it is not computed yet. columns: the
      positions j that change. */
  influence(changes, labels, columns) {
    return views.grid({
      name: "Largest change of a logit: rows are positions, columns the token that changes",
      rows: labels.map(({ at, text }) => ({ at, text })),
      columns: columns.map((j) => labels[j]),
      kind: "numbers",
      cell(i, place) {
        const j = columns[place];
        const x = changes(i, j);
        if (x === null) return { value: "", label: "not computed yet", inner: "…" };
        const kind = x === 0 ? "zero" : i === j ? "self" : j > i ? "leak" : "";
        return { value: x, label: views.change(x), kind, inner: views.change(x) };
      },
    });
  },

  /** The text so far: the reader's own, and what the model added. */
  passage: (prompt, added) => `<span class="prompt">${book.escape(prompt)}</span><span class="added">${book.escape(added)}</span>`,

  /** What a step had to choose from. rows: [{text, id, plain, p, taken}], plain the probability before the filters, p with them. */
  candidates(rows, temperature) {
    const cells = ({ text, id, plain, p, taken }) => [
      `<th scope="row">${views.token(text)}</th>`,
      `<td>${id}</td>`,
      `<td>${views.percent(plain)}</td>`,
      `<td>${p > 0 ? views.percent(p) : "cut"}</td>`,
      `<td>${taken ? "yes" : ""}</td>`,
    ];
    const heads = views.columns(["candidate", "id", `at temperature ${temperature}`, "in the draw", "taken"]);
    return views.scroll("What the last step had to choose from", views.table("try-candidates", heads, rows.map(cells)));
  },

  /** sides: [{key, name, tokens, positions, milliseconds, text}], without the cache and with it. */
  sides(sides) {
    const side = ({ key, name, tokens, positions, milliseconds, text }) => {
      const fact = (label, what, n) => `<div><dt>${label}</dt><dd data-name="${what}">${book.int(n)}</dd></div>`;
      const facts =
        fact("new tokens", "tokens", tokens) +
        fact("positions processed", "positions", positions) +
        fact("milliseconds", "milliseconds", milliseconds);
      const passage = `<div class="try-passage" tabindex="0" role="region" aria-label="${name}">${book.escape(text)}</div>`;
      return `<section data-side="${key}"><h3>${name}</h3><dl>${facts}</dl>${passage}</section>`;
    };
    return `<div class="try-sides">${sides.map(side).join("")}</div>`;
  },
};

if (typeof module !== "undefined") module.exports = views;
