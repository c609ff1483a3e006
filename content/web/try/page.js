"use strict";
/* The page "Try it": loads the weights, and keeps the first five parts in step with the reader's text. `lab` is the model (bpe.js,
   gpt2.js, sampling.js), `views` the markup, `jobs` the order of work; generation.js is the rest of the page. */

const tryPage = {
  // How much of a long text a part shows. The pass over a long text takes a second, and a table of it has no room in a page.
  attentionTokens: 24,
  influenceTokens: 16,
  longest: 20000, // characters that are worth cutting into tokens
  pause: 150, // milliseconds without a keystroke before the model runs

  model: null, // until the weights are there
  config: null,
  ids: [], // of the text, empty while it cannot be computed
  labels: [], // [{at, text}] of ids
  head: 0,
  cache: null, // keys and values of the ids in `fed`
  fed: [],
  traces: {}, // of this text, with the mask and without
  drawn: null, // {weights [T * T], labels, mask} of the head that is shown large

  $: (selector) => document.querySelector(selector),
  part: (name) => document.getElementById(`try-${name}`),
  put: (name, markup) => (tryPage.part(name).querySelector(".result").innerHTML = markup),
  say: (name, sentence) => (tryPage.part(name).querySelector(".words").textContent = sentence),
  limit: (name, sentence) => (tryPage.part(name).querySelector(".limit").textContent = sentence),

  // ---------------------------------------------------------------------------------------------------------------- the text

  /** {ids, problem}: the ids of a text, and what is wrong with it, if anything. */
  read(text) {
    const most = tryPage.config.n_positions;
    if (text === "") return { ids: [], problem: "The text is empty, and a model needs at least one token; type some text." };
    if (/\p{Surrogate}/u.test(text)) return { ids: [], problem: "The text holds half of a character; take it out." };
    if (text.length > tryPage.longest) {
      const found = `The text has ${book.int(text.length)} characters`;
      return { ids: [], problem: `${found}, and this page cuts at most ${book.int(tryPage.longest)} into tokens; shorten it.` };
    }
    const ids = Array.from(lab.tokenizer.encode(text));
    const long = ids.length > most;
    return { ids, problem: long ? `The text has ${ids.length} tokens, and the model has ${most} positions; shorten it.` : "" };
  },

  /** The text has changed: the tokens at once, all else after a pause. */
  typed() {
    const { ids, problem } = tryPage.read(tryPage.$("#try-text").value);
    const most = tryPage.config.n_positions;
    const texts = ids.map((id) => lab.tokenizer.text(id));
    tryPage.$("#try-problem").textContent = problem;
    tryPage.$("#try-text").setAttribute("aria-invalid", String(problem !== ""));
    tryPage.put("tokens", ids.length ? views.tokens(texts, ids) : "");
    tryPage.say("tokens", `${ids.length} ${ids.length === 1 ? "token" : "tokens"} of at most ${most}.`);
    clearTimeout(tryPage.waiting);
    tryPage.waiting = tryPage.model && setTimeout(() => tryPage.settled(problem ? [] : ids, texts), tryPage.pause);
  },

  /** The text stands: everything that is made of it is due. */
  settled(ids, texts) {
    Object.assign(tryPage, { ids, labels: ids.map((_, at) => ({ at, text: texts[at] })), traces: {}, waiting: null });
    const changed = tryPage.$("#try-changed");
    const options = tryPage.labels.slice(0, tryPage.influenceTokens).map(({ at, text }) => [at, `${at} ${text}`]);
    const chosen = changed.selectedIndex;
    changed.replaceChildren(...[["all", "each in turn"], ...options].map(([value, label]) => new Option(label, value)));
    changed.selectedIndex = chosen > 0 && chosen <= options.length ? chosen : 0;
    jobs.due("next", "attention", "sizes", "influence");
    generation.reset();
  },

  /** A part without a text to show: nothing. True where that is so. */
  empty(name) {
    if (tryPage.ids.length) return false;
    tryPage.part(name).querySelectorAll(".result, .limit, .heads").forEach((box) => box.replaceChildren());
    tryPage.say(name, "There is no text to compute.");
    return true;
  },

  /** "the first 24 of 30 tokens" where a part shows less than all. */
  shortened(shown, why) {
    const all = tryPage.ids.length;
    return shown < all ? `These are the first ${shown} of ${all} tokens${why}.` : "";
  },

  // ------------------------------------------------------------------------------------------------------------- the next token

  /** The n largest of p [V], the lower id on a tie: ids, best first. */
  best: (p, n) => Array.from(p.keys()).sort((a, b) => p[b] - p[a] || a - b).slice(0, n),

  /** The logits of the last position. Only what differs from the text before is fed to the cache, a few positions at a time. */
  *lastLogits() {
    const { ids, fed, model } = tryPage;
    let kept = 0;
    while (kept < fed.length && kept < ids.length - 1 && fed[kept] === ids[kept]) kept++;
    tryPage.cache ??= lab.newCache(model);
    tryPage.cache.length = kept;
    tryPage.fed = fed.slice(0, kept);
    let logits = null;
    while (kept < ids.length) {
      const more = ids.slice(kept, kept + lab.piece);
      logits = lab.forwardCached(model, more, tryPage.cache, { last: true });
      tryPage.fed.push(...more);
      kept += more.length;
      yield;
    }
    return logits;
  },

  *next() {
    if (tryPage.empty("next")) return;
    const p = lab.probabilities(yield* tryPage.lastLogits(), { temperature: 1 });
    const rows = tryPage.best(p, 5).map((id) => ({ id, text: lab.tokenizer.text(id), p: p[id] }));
    const held = rows.reduce((sum, row) => sum + row.p, 0);
    tryPage.put("next", views.next(rows));
    const first = `Most probable next: ${views.quoted(rows[0].text)} with ${views.percent(rows[0].p)}.`;
    tryPage.say("next", `${first} These ${rows.length} of ${book.int(p.length)} tokens hold ${views.percent(held)}.`);
  },

  // -------------------------------------------------------------------------------------------------------- attention and sizes

  /** What the pass over the first tokens left in its trace, with the mask or without. */
  trace(mask) {
    if (!tryPage.traces[mask]) {
      const trace = { attention: [], sizes: [] };
      lab.forward(tryPage.model, tryPage.ids.slice(0, tryPage.attentionTokens), { mask, last: true, trace });
      tryPage.traces[mask] = trace;
    }
    return tryPage.traces[mask];
  },

  masked: (select) => tryPage.$(select).value === "on",

  *attention() {
    if (tryPage.empty("attention")) return;
    const mask = tryPage.masked("#try-mask");
    const layer = tryPage.$("#try-layer").selectedIndex;
    const all = tryPage.trace(mask).attention[layer];
    const labels = tryPage.labels.slice(0, tryPage.attentionTokens);
    const T = labels.length;
    const cut = mask ? ", which the later ones do not change" : ", and the pass without a mask ran on these alone";
    tryPage.part("attention").querySelector(".heads").innerHTML = views.heads(all, tryPage.config.n_head, T, tryPage.head);
    tryPage.limit("attention", tryPage.shortened(T, cut));
    tryPage.showHead();
  },

  /** The chosen head, large. */
  showHead() {
    const mask = tryPage.masked("#try-mask");
    const layer = tryPage.$("#try-layer").selectedIndex;
    const labels = tryPage.labels.slice(0, tryPage.attentionTokens);
    const T = labels.length;
    const weights = tryPage.trace(mask).attention[layer].subarray(tryPage.head * T * T, (tryPage.head + 1) * T * T);
    tryPage.drawn = { weights, labels, mask };
    tryPage.put("attention", views.attention(weights, labels, layer, tryPage.head, mask));
    const state = `Layer ${layer}, head ${tryPage.head}, ${mask ? "with" : "without"} the mask.`;
    tryPage.say("attention", `${state} Go to a square, with the pointer or with Tab and the arrow keys, to read its weight.`);
  },

  /** Of the table as it is drawn: until its job has run, that is still one of the text before. */
  tellWeight(i, j) {
    const { weights, labels, mask } = tryPage.drawn;
    const at = (k) => `position ${k}, ${views.quoted(labels[k].text)}`;
    if (mask && j > i) {
      return `From ${at(i)}: ${at(j)}, comes later, so the mask hides it. Its weight is 0.`;
    }
    const weight = weights[i * labels.length + j].toFixed(3);
    return `From ${at(i)}: ${i === j ? "itself" : at(j)}, is read with a weight of ${weight}.`;
  },

  *sizes() {
    if (tryPage.empty("sizes")) return;
    const { sizes } = tryPage.trace(true);
    yield;
    const rms = (row) => (row.length ? Math.sqrt(row.reduce((sum, x) => sum + x * x, 0) / row.length) : null);
    const rows = sizes.map((row) => ({ sizes: Array.from(row), whole: rms(row), rest: rms(row.slice(1)) }));
    const T = sizes[0].length;
    tryPage.put("sizes", views.sizes(rows, tryPage.labels.slice(0, T)));
    const [first, last] = [rows[0].whole, rows.at(-1).whole].map(views.size);
    const both = `${first} after the embedding and ${last} after layer ${rows.length - 2}`;
    tryPage.say("sizes", `The RMS over all positions is ${both}, ${(last / first).toFixed(0)} times as large.`); // of what is shown
    tryPage.limit("sizes", tryPage.shortened(T, ", which the later ones do not change"));
  },

  // ------------------------------------------------------------------------------------------------------------------ influence

  /** The text of the token that lab.influenceColumn puts in the place of an id. */
  replacement(id) {
    const V = tryPage.config.vocab_size;
    return lab.tokenizer.text((id + Math.floor(V / 2)) % V);
  },

  /** changes[j] is a column: the largest change at each position when token j is another. One pass a slice. */
  *influence() {
    if (tryPage.empty("influence")) return;
    const ids = tryPage.ids.slice(0, tryPage.influenceTokens);
    const mask = tryPage.masked("#try-influence-mask");
    const labels = ids.map((id, at) => ({ ...tryPage.labels[at], becomes: tryPage.replacement(id) }));
    const one = tryPage.$("#try-changed").value;
    const columns = one === "all" ? ids.map((_, j) => j) : [Number(one)];
    const changes = {};
    const draw = () => tryPage.put("influence", views.influence((i, j) => changes[j]?.[i] ?? null, labels, columns));
    const cut = `; ${columns.length === 1 ? "a table" : "each column is a pass of its own, and a table"} of more would take long`;
    tryPage.limit("influence", tryPage.shortened(ids.length, cut));
    tryPage.tellChange = (i, place) => tryPage.changeInWords(labels, columns[place], i, changes);
    tryPage.say("influence", "Computing …");
    const before = lab.forward(tryPage.model, ids, { mask });
    draw();
    yield;
    for (const j of columns) {
      changes[j] = lab.influenceColumn(tryPage.model, ids, before, j, { mask });
      draw();
      yield;
    }
    const above = columns.flatMap((j) => Array.from(changes[j]).slice(0, j));
    const zeros = above.filter((x) => x === 0).length;
    const many = `${zeros} of the ${above.length} entries above the diagonal are exactly 0`;
    const single = `the only entry above the diagonal is ${zeros ? "exactly" : "not"} 0`;
    const heard = above.length > 1 ? many : above.length ? single : "nothing is above the diagonal";
    tryPage.say("influence", `${mask ? "With" : "Without"} the mask ${heard}.`);
  },

  changeInWords(labels, j, i, changes) {
    const at = (k) => `position ${k}, ${views.quoted(labels[k].text)}`;
    const x = changes[j]?.[i];
    if (x === undefined) return "This one is not computed yet.";
    const heard = x === 0 ? "no logit changes" : `a logit changes by up to ${x.toPrecision(3)}`;
    const replaced = `When the token at ${at(j)}, becomes ${views.quoted(labels[j].becomes)}`;
    return `${replaced}, ${heard} at ${i === j ? "the position itself" : at(i)}.`;
  },

  // ------------------------------------------------------------------------------------------------------------------- the page

  weighs: () => (book_model.bytes / 1e6).toFixed(1),

  /** The tokenizer is there with the page, so ids can be shown before the weights have come. */
  begin() {
    lab.tokenizer = lab.makeTokenizer(book_model.tokenizer);
    tryPage.config = book_model.config;
    tryPage.$("#try-weighs").textContent = `The file is ${tryPage.weighs()} MB in size.`;
    tryPage.$("#try-text").addEventListener("input", tryPage.typed);
    tryPage.part("tokens").hidden = false;
    landing.open();
    tryPage.typed();
  },

  /** The weights have come: make the rest live. */
  open() {
    const $ = tryPage.$;
    const within = (name, selector) => tryPage.part(name).querySelector(selector);
    tryPage.model = lab.loadModel(book_model);
    book_model.data = null; // 9 MB of letters, not needed any more
    $("#try-layer").replaceChildren(...Array.from({ length: tryPage.config.n_layer }, (_, i) => new Option(String(i), String(i))));
    for (const name of ["next", "attention", "sizes", "influence"]) jobs.add(name, tryPage.part(name), tryPage[name]);
    for (const name of ["mask", "layer"]) $(`#try-${name}`).addEventListener("change", () => jobs.due("attention"));
    for (const name of ["influence-mask", "changed"]) $(`#try-${name}`).addEventListener("change", () => jobs.due("influence"));
    within("attention", ".heads").addEventListener("click", tryPage.chooseHead);
    walkable(within("attention", ".result"), within("attention", ".words"), tryPage.tellWeight);
    walkable(within("influence", ".result"), within("influence", ".words"), (i, place) => tryPage.tellChange(i, place));
    generation.open();
    document.querySelectorAll(".try").forEach((part) => (part.hidden = false));
    tryPage.typed();
  },

  chooseHead(event) {
    const button = event.target.closest("button");
    if (!button || !tryPage.ids.length) return; // without a text the heads are about to go
    tryPage.head = Number(button.dataset.head);
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
    tryPage.showHead();
  },

  /** Load the weights, which are asked for only now. folder: the address of a script that lies beside them. */
  load(folder) {
    const state = tryPage.$("#try-state");
    const failed = (sentence) => Object.assign(state, { textContent: sentence, className: "try-state try-problem" });
    const script = Object.assign(document.createElement("script"), { src: new URL("weights.js", folder).href });
    state.textContent = `Loading the weights, ${tryPage.weighs()} MB …`;
    const missing = "The weights did not load. They are the file assets/try/weights.js, which belongs beside this page.";
    script.addEventListener("error", () => failed(missing));
    script.addEventListener("load", () => {
      state.textContent = "Reading the weights …";
      setTimeout(() => {
        try {
          tryPage.open();
          state.textContent = "The model is loaded.";
        } catch (error) {
          failed(`The model cannot be used: ${error.message}.`);
        }
      }, 30); // long enough for the words above to be seen
    });
    document.head.append(script);
  },
};

{
  const folder = document.currentScript.src;
  document.addEventListener("DOMContentLoaded", () => {
    tryPage.begin();
    tryPage.load(folder);
  });
}
