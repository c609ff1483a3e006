"use strict";
/* The toolkit of the figures. A figure is a plain object of pure functions, one file each in figures/:

     book.figure({
       id: "layers", number: 3, title: "Parameters by depth",
       controls: [book.range("layers", "Layers", 1, 48, 12)],
       numbers(state) { ... },          // {name: number}, from the state of the controls alone
       shown(n, state) { ... },         // {key: text}, every number that the reader sees
       draw(n, state) { ... },          // markup, with {key} where a shown number stands
       words(n, state) { ... },         // one or two sentences that say what the drawing shows, with {key}
     });

   No function but `mount` touches a page, so the build draws each figure's first state without a browser, and a test reads every state.
   A number reaches the page only through `shown`: the page marks it with data-shows, and a test compares it with Python's. */

const book = {
  data: {}, // facts that Python wrote at build time: published shapes, measured rates, ids of real tokenizers
  figures: {},

  figure(definition) {
    if (book.figures[definition.id]) throw new Error(`two figures are called ${definition.id}`);
    book.figures[definition.id] = definition;
  },

  // ------------------------------------------------------------------------------------------------------------ controls

  range: (name, label, min, max, value, step = 1, text = String) => ({ kind: "range", name, label, min, max, value, step, text }),
  // like a range, with a button on each side: for a walk through stages
  steps: (name, label, min, max, value) => ({ kind: "steps", name, label, min, max, value, step: 1, text: String }),
  // options: [[value, label], ...]
  choice: (name, label, options, value) => ({ kind: "choice", name, label, options, value }),
  // a button that is pressed or not: its value is true or false
  toggle: (name, label, value = false) => ({ kind: "toggle", name, label, value }),

  /** All values that a control takes, in order. */
  values(control) {
    if (control.kind === "toggle") return [false, true];
    if (control.kind === "choice") return control.options.map(([value]) => value);
    const count = Math.round((control.max - control.min) / control.step) + 1;
    return Array.from({ length: count }, (_, i) => Number((control.min + i * control.step).toFixed(6)));
  },

  /** {name: value} of a figure's controls as the page opens. */
  start(id) {
    return Object.fromEntries(book.figures[id].controls.map((c) => [c.name, c.value]));
  },

  // ------------------------------------------------------------------------------------------------------------- numbers

  /** 1234567 as 1,234,567. */
  int(x) {
    return String(Math.round(x)).replace(/\B(?=(\d{3})+$)/g, ",");
  },

  /** x with so many digits behind the point, and commas before it. */
  fixed(x, digits) {
    const [whole, part] = x.toFixed(digits).split(".");
    return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
  },

  /** A share of 1 as per cent. */
  percent: (x, digits = 1) => `${book.fixed(100 * x, digits)} per cent`,

  /** A token as a reader can see it: a blank as ␣, a newline as ⏎. */
  visible: (token) => token.replace(/ /g, "␣").replace(/\n/g, "⏎"),

  /** A probability in per cent, without the words: one digit behind the point, three where one would read as certain. */
  share(x) {
    const short = (100 * x).toFixed(1);
    if (short === "100.0" && x < 1 - 1e-9) return (100 * x).toFixed(3);
    return short === "0.0" && x > 0 ? "<0.1" : short;
  },

  /** e^x over the sum, row by row; a -Infinity gets 0. */
  softmax(row) {
    const top = Math.max(...row);
    const powers = row.map((x) => Math.exp(x - top));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((x) => x / sum);
  },

  /** Positions that the two loops compute for m new tokens after P others: the whole text each time, or each position once. */
  positions: (P, m) => ({ naive: m * P + (m * (m - 1)) / 2, cached: P + m - 1 }),

  /** FLOPs of a pass over T positions behind `past` cached ones, logits of the last position only, for {n_layer, n_embd, vocab_size}. */
  pass: ({ n_layer: L, n_embd: d, vocab_size: V }, past, T) => T * L * (24 * d * d + 4 * d * (past + T)) + 2 * d * V,

  /** FLOPs of both loops for a shape, as chapters 4 and 10 count them. */
  flops(shape, P, m) {
    const pass = (past, T) => book.pass(shape, past, T);
    let [naive, cached] = [0, pass(0, P)];
    for (let j = 0; j < m; j++) naive += pass(0, P + j);
    for (let j = 0; j < m - 1; j++) cached += pass(P + j, 1);
    return { naive, cached };
  },

  /** Parameters of a shape of GPT-2, part by part; the head is the token table. */
  parameters({ n_layer: L, n_embd: d, vocab_size: V, n_positions: P }) {
    const blocks = { attention: L * (4 * d * d + 4 * d), feed: L * (8 * d * d + 5 * d), norms: L * 4 * d };
    const parts = { ...blocks, tokens: V * d, positions: P * d, last: 2 * d };
    return { ...parts, total: Object.values(parts).reduce((a, b) => a + b, 0) };
  },

  /** Bytes of a cache: a key and a value of d numbers for each layer and token. */
  cacheBytes: ({ n_layer: L, n_embd: d }, tokens, number = 2) => 2 * L * d * tokens * number,

  /** x to about three figures, without an exponent. */
  about: (x) => book.fixed(x, x >= 100 || x === 0 ? 0 : x >= 10 ? 1 : x >= 1 ? 2 : 3),

  // ------------------------------------------------------------------------------------------------------------- drawing

  escape: (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]),

  attributes: (given) =>
    Object.entries(given)
      .filter(([, value]) => value !== undefined && value !== null && value !== false)
      .map(([name, value]) => ` ${name}="${book.escape(typeof value === "number" ? Number(value.toFixed(2)) : value)}"`)
      .join(""),

  /** An SVG of 400 units in width; `what` says in a few words what is drawn. Text in it is 14 units high. */
  svg: (height, what, ...parts) =>
    `<svg viewBox="0 0 400 ${height}" role="img" aria-label="${book.escape(what)}" xmlns="http://www.w3.org/2000/svg">${parts.flat(9).join("")}</svg>`,
  rect: (x, y, width, height, kind = "", more = {}) => `<rect${book.attributes({ x, y, width, height, class: kind, ...more })}/>`,
  line: (x1, y1, x2, y2, kind = "line") => `<line${book.attributes({ x1, y1, x2, y2, class: kind })}/>`,
  path: (d, kind = "line") => `<path${book.attributes({ d, class: kind })}/>`,
  /** A line with a head at its end. */
  arrow(x1, y1, x2, y2, kind = "line") {
    const angle = Math.atan2(y2 - y1, x2 - x1);
    const side = (turn) => `M${x2} ${y2}l${(-9 * Math.cos(angle + turn)).toFixed(1)} ${(-9 * Math.sin(angle + turn)).toFixed(1)}`;
    return book.path(`M${x1} ${y1}L${x2} ${y2}`, kind) + book.path(side(0.45) + side(-0.45), kind.replace(/ ?dashed/, ""));
  },
  circle: (cx, cy, r, kind = "") => `<circle${book.attributes({ cx, cy, r, class: kind })}/>`,
  /** A line of text, with {key} for shown numbers; anchor: start, middle or end. It is escaped here. */
  text: (x, y, content, anchor = "start", kind = "") =>
    `<text${book.attributes({ x, y, "text-anchor": anchor === "start" ? undefined : anchor, class: kind || undefined })}>${book.escape(content)}</text>`,

  // ------------------------------------------------------------------------------------------------------- a state drawn

  /** {numbers, shown, drawing, words} of a figure in a state; drawing and words are markup. Throws for a {key} that is not shown. */
  render(id, state) {
    const figure = book.figures[id];
    const numbers = figure.numbers(state);
    const shown = figure.shown(numbers, state);
    const filled = (markup) => {
      const inSvg = (at) => markup.lastIndexOf("<svg", at) > markup.lastIndexOf("</svg>", at);
      return markup.replace(/\{([\w.-]+)\}/g, (_, key, at) => {
        if (!(key in shown)) throw new Error(`figure ${id} shows no ${key}`);
        const tag = inSvg(at) ? "tspan" : "span";
        return `<${tag} data-shows="${key}">${book.escape(shown[key])}</${tag}>`;
      });
    };
    return { numbers, shown, drawing: filled(figure.draw(numbers, state)), words: filled(figure.words(numbers, state)) };
  },

  // ---------------------------------------------------------------------------------------------------------- in the page

  /** Give <figure data-figure="ID"> its controls, and draw it anew at each change. What stands in it without JavaScript goes. */
  mount(element) {
    const id = element.dataset.figure;
    const figure = book.figures[id];
    const state = book.start(id);
    const drawing = element.querySelector(".drawing");
    const words = element.querySelector(".words");
    const controls = element.querySelector(".controls");
    const labels = {};
    const draw = () => {
      const { drawing: markup, words: sentence } = book.render(id, state);
      drawing.innerHTML = markup;
      words.innerHTML = sentence;
      for (const update of Object.values(labels)) update();
    };
    for (const control of figure.controls) {
      const { name, kind } = control;
      const box = document.createElement("div");
      box.className = `control ${kind}`;
      const set = (value) => {
        state[name] = value;
        draw();
      };
      // autocomplete is off where a control has it: a browser that goes back would fill in values that the drawing does not have
      const made = (tag, properties) => Object.assign(document.createElement(tag), properties);
      if (kind === "toggle") {
        const button = made("button", { type: "button", textContent: control.label, name });
        labels[name] = () => button.setAttribute("aria-pressed", String(state[name]));
        button.addEventListener("click", () => set(!state[name]));
        box.append(button);
      } else if (kind === "choice") {
        const select = made("select", { id: `${id}-${name}`, name, autocomplete: "off" });
        control.options.forEach(([value, label], i) => select.append(made("option", { value: String(i), textContent: label })));
        labels[name] = () => (select.selectedIndex = control.options.findIndex(([value]) => value === state[name]));
        select.addEventListener("change", () => set(control.options[select.selectedIndex][0]));
        box.append(made("label", { htmlFor: select.id, textContent: control.label }), select);
      } else {
        const { min, max, step } = control;
        const input = made("input", { type: "range", id: `${id}-${name}`, name, min, max, step, autocomplete: "off" });
        const value = made("span", { className: "value" });
        value.setAttribute("aria-hidden", "true"); // the range says its value itself
        labels[name] = () => {
          input.value = state[name];
          value.textContent = control.text(state[name]);
          input.setAttribute("aria-valuetext", control.text(state[name]));
        };
        input.addEventListener("input", () => set(Number(input.value)));
        box.append(made("label", { htmlFor: input.id, textContent: control.label }), input, value);
        if (kind === "steps") {
          const step = (by, text) => {
            const button = made("button", { type: "button", textContent: text });
            button.addEventListener("click", () => set(Math.min(max, Math.max(min, state[name] + by))));
            const before = labels[name];
            labels[name] = () => {
              before();
              button.setAttribute("aria-disabled", String(state[name] === (by < 0 ? min : max)));
            };
            return button;
          };
          input.before(step(-1, "Back"));
          value.after(step(1, "Next"));
        }
      }
      controls.append(box);
    }
    draw();
    words.setAttribute("aria-live", "polite"); // only now, so that opening the page announces nothing
    element.classList.add("live");
  },
};

if (typeof document !== "undefined") {
  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("figure[data-figure]").forEach(book.mount));
}
