"use strict";
/* The last two parts of "Try it": the loop of Chapter 5, and the same loop with Chapter 10's cache beside it. */

/** The settings' fields in the page: what is wrong with a text in one, or its value. */
const settings = {
  /** A number as a person writes one, or NaN: Number alone takes "" for 0 and "0x10" for 16. */
  number: (text) => (/^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(text) ? Number(text) : NaN),
  off: (text) => ["", "off"].includes(text.trim().toLowerCase()),
  whole: (text) => /^\s*\d+\s*$/.test(text),

  /** {id of a field: (text, room) => [value], or a sentence that says what is wrong}. room: new tokens that have a position. */
  fields: {
    temperature(text) {
      const x = settings.number(text);
      if (x >= 0 && x < Infinity) return [x];
      return `The temperature is “${text}”; give a number from 0 (0 takes the most probable token).`;
    },
    "top-k"(text) {
      if (settings.off(text)) return [null];
      if (settings.whole(text) && Number(text) >= 1) return [Number(text)];
      return `Top-k is “${text}”; give how many tokens to keep, a whole number from 1, or leave it empty.`;
    },
    "top-p"(text) {
      if (settings.off(text)) return [null];
      const p = settings.number(text);
      return p > 0 && p <= 1 ? [p] : `Top-p is “${text}”; give a probability above 0 and up to 1, or leave it empty.`;
    },
    seed(text) {
      if (settings.whole(text) && Number.isSafeInteger(Number(text))) return [Number(text)];
      return `The seed is “${text}”; give a whole number, 0 to ${Number.MAX_SAFE_INTEGER}.`;
    },
    count(text, room) {
      if (!settings.whole(text) || Number(text) < 1) return `New tokens are “${text}”; give a whole number from 1.`;
      if (Number(text) <= room) return [Number(text)];
      return `The model has room for ${room} new tokens, and ${text.trim()} are asked for; ask for fewer.`;
    },
  },

  /** {temperature, topK, topP, seed, count}, or {problem, field} with the first thing that is wrong. texts: {field: text}. */
  read(texts, room) {
    const found = {};
    for (const [field, check] of Object.entries(settings.fields)) {
      const value = check(texts[field], room);
      if (typeof value === "string") return { problem: value, field };
      found[field] = value[0];
    }
    const { "top-k": topK, "top-p": topP, ...rest } = found;
    return { ...rest, topK, topP };
  },

  /** The same in a few words. */
  words: ({ temperature, topK, topP, seed }) =>
    `temperature ${temperature}, top-k ${topK ?? "off"}, top-p ${topP ?? "off"}, seed ${seed}`,
};

/** Chapter 5's loop with a count of what it did. cached: with Chapter 10's cache, or all anew. step() computes a piece, and is true
    where a token came of it: a long text takes several, and the browser has its turn between them. */
function countedLoop(model, prompt, chosen, cached) {
  const { count, ...options } = chosen;
  const steps = lab.generate(model, prompt, count, { ...options, cached, piece: lab.piece });
  const loop = { prompt, chosen, added: [], positions: 0, milliseconds: 0, ended: false, done: false, logits: null };
  let spent = 0; // milliseconds for a token that is not there yet
  loop.step = () => {
    const start = performance.now();
    const made = steps.next().value;
    spent += performance.now() - start;
    if (!made) return false;
    const { id, logits, positions, ended } = made;
    loop.milliseconds += spent;
    spent = 0;
    loop.positions += positions;
    loop.added.push(id);
    Object.assign(loop, { logits, ended, done: ended || loop.added.length === count });
    return true;
  };
  return loop;
}

const generation = {
  loop: null, // of the passage
  timer: null,
  sides: null, // the two loops side by side
  sidesTimer: null,

  /** The settings as they stand in the page, or null: then the page says in `part` what is wrong. */
  read(part) {
    const ids = tryPage.ids;
    const room = tryPage.config.n_positions - ids.length + 1; // the last token is never fed
    const field = (name) => tryPage.$(`#try-${name}`);
    const names = Object.keys(settings.fields);
    const found = settings.read(Object.fromEntries(names.map((name) => [name, field(name).value])), room);
    const none = { problem: "There is no text to go on from; mend it at the top of the page.", field: null };
    if (!ids.length) Object.assign(found, none);
    for (const name of names) field(name).setAttribute("aria-invalid", String(found.field === name));
    tryPage.part(part).querySelector(".try-problem").textContent = found.problem ?? "";
    return found.problem ? null : found;
  },

  /** The text has changed: nothing of the old one stays. */
  reset() {
    generation.stop();
    generation.stopSides();
    generation.loop = generation.sides = null;
    tryPage.put("generation", views.passage(lab.tokenizer.decode(tryPage.ids), ""));
    tryPage.part("generation").querySelector(".candidates").innerHTML = "";
    tryPage.put("cache", "");
    for (const name of ["generation", "cache"]) {
      tryPage.say(name, "");
      tryPage.part(name).querySelector(".try-problem").textContent = "";
    }
  },

  /** The prompt and what was added, decoded together: a character may be of several tokens, and is whole only with the last. */
  text({ prompt, added }) {
    const before = lab.tokenizer.decode(prompt);
    const all = lab.tokenizer.decode(prompt.concat(added));
    return all.startsWith(before) ? [before, all.slice(before.length)] : ["", all];
  },

  // ------------------------------------------------------------------------------------------------------------- the passage

  start() {
    const chosen = generation.read("generation");
    generation.stop();
    if (!chosen) return;
    generation.loop = countedLoop(tryPage.model, tryPage.ids.slice(), chosen, true);
    tryPage.say("generation", "Writing …");
    generation.running(true);
    generation.go(false);
  },

  /** A piece of work, then the browser's turn, then the next. single: only until there is one token more. */
  go(single) {
    const { loop } = generation;
    const made = loop.step();
    if (made) generation.show();
    if (!made || !(single || loop.done)) {
      generation.timer = setTimeout(generation.go, 0, single);
      return;
    }
    generation.timer = null;
    generation.running(false);
    generation.showCandidates();
    if (single) generation.tellStep();
    else generation.finished();
  },

  stop() {
    if (generation.timer === null && tryPage.$("#try-stop").getAttribute("aria-disabled") === "true") return;
    clearTimeout(generation.timer);
    generation.timer = null;
    generation.running(false);
    if (generation.loop && !generation.loop.done) generation.finished();
  },

  /** One token more of the same text, or the first one where the settings are others than before. */
  step() {
    const chosen = generation.read("generation");
    generation.stop();
    if (!chosen) return;
    const { loop } = generation;
    const others = !loop || JSON.stringify(loop.chosen) !== JSON.stringify(chosen);
    if (others || loop.done) generation.loop = countedLoop(tryPage.model, tryPage.ids.slice(), chosen, true);
    generation.running(true);
    generation.go(true);
  },

  /** The token that a single step has added. */
  tellStep() {
    const { logits, added, chosen } = generation.loop;
    const id = added.at(-1);
    const drawn = `drawn with a probability of ${views.percent(lab.probabilities(logits, chosen)[id])}`;
    const how = chosen.temperature === 0 ? "the most probable" : drawn;
    tryPage.say("generation", `New token ${added.length}: ${views.quoted(lab.tokenizer.text(id))}, id ${id}, ${how}.`);
  },

  running(on) {
    tryPage.$("#try-stop").setAttribute("aria-disabled", String(!on));
    if (on) tryPage.part("generation").setAttribute("aria-busy", "true");
    else tryPage.part("generation").removeAttribute("aria-busy");
  },

  show: () => tryPage.put("generation", views.passage(...generation.text(generation.loop))),

  /** What the last step had to choose from. */
  showCandidates() {
    const { logits, chosen, added } = generation.loop;
    const taken = added.at(-1);
    const plain = lab.probabilities(logits, { temperature: chosen.temperature || 1 });
    const p = lab.probabilities(logits, chosen);
    const best = tryPage.best(plain, 5);
    const ids = best.includes(taken) ? best : best.concat(taken);
    const rows = ids.map((id) => ({ id, text: lab.tokenizer.text(id), plain: plain[id], p: p[id], taken: id === taken }));
    tryPage.part("generation").querySelector(".candidates").innerHTML = views.candidates(rows, chosen.temperature || 1);
  },

  finished() {
    const { added, milliseconds, chosen, ended, done } = generation.loop;
    if (!added.length) {
      tryPage.say("generation", "Stopped before the first new token.");
      return;
    }
    const how = ended ? "The model has ended the text" : done ? "Done" : "Stopped";
    const rate = ((1000 * added.length) / milliseconds).toFixed(0);
    const count = `${added.length} new ${added.length === 1 ? "token" : "tokens"}`;
    const time = `${(milliseconds / 1000).toFixed(2)} s of computing, ${rate} a second`;
    tryPage.say("generation", `${how}: ${count} in ${time}; ${settings.words(chosen)}.`);
  },

  // --------------------------------------------------------------------------------------------------- without and with the cache

  both() {
    const chosen = generation.read("cache");
    generation.stopSides();
    if (!chosen) return;
    generation.sides = [false, true].map((cached) => countedLoop(tryPage.model, tryPage.ids.slice(), chosen, cached));
    tryPage.$("#try-both-stop").setAttribute("aria-disabled", "false");
    tryPage.part("cache").setAttribute("aria-busy", "true");
    tryPage.say("cache", "Running both …");
    generation.goBoth();
  },

  /** A piece of the one's step, or of the other's: the one that is behind. */
  goBoth() {
    const [plain, cached] = generation.sides;
    (cached.added.length < plain.added.length ? cached : plain).step();
    generation.showSides();
    if (cached.done) generation.stopSides();
    else generation.sidesTimer = setTimeout(generation.goBoth, 0);
  },

  stopSides() {
    if (tryPage.$("#try-both-stop").getAttribute("aria-disabled") === "true") return;
    clearTimeout(generation.sidesTimer);
    tryPage.$("#try-both-stop").setAttribute("aria-disabled", "true");
    tryPage.part("cache").removeAttribute("aria-busy");
    generation.compared();
  },

  showSides() {
    const side = (loop, key, name) => ({ ...loop, key, name, tokens: loop.added.length, text: generation.text(loop)[1] });
    const [plain, cached] = generation.sides;
    tryPage.put("cache", views.sides([side(plain, "plain", "Without the cache"), side(cached, "cached", "With the cache")]));
  },

  /** Both sides in a sentence. After a stop one may be a token ahead, and then there is nothing to compare. */
  compared() {
    const [plain, cached] = generation.sides;
    if (!plain.added.length) {
      tryPage.say("cache", "Stopped before the first new token.");
      return;
    }
    if (plain.added.length !== cached.added.length) {
      tryPage.say("cache", "Stopped between two steps, so the sides are a token apart.");
      return;
    }
    const same = plain.added.every((id, i) => id === cached.added[i]) ? "The tokens are the same." : "The tokens are NOT the same.";
    // Whole numbers, and ratios of these, so that what is shown divides. A coarse clock may give no milliseconds at all.
    const [positions, times] = ["positions", "milliseconds"].map((name) => [plain, cached].map((loop) => Math.round(loop[name])));
    const ratio = ([one, other]) => book.fixed(one / other, 1);
    const many = `${book.int(positions[0])} positions without the cache and ${book.int(positions[1])} with it`;
    const long = `${book.int(times[0])} ms against ${book.int(times[1])}`;
    const longer = times[1] ? `${ratio(times)} times as long` : "too short to compare";
    tryPage.say("cache", `${same} ${many}, ${ratio(positions)} times as many; ${long}, ${longer}.`);
  },

  open() {
    const on = (id, act) => tryPage.$(id).addEventListener("click", act);
    on("#try-start", generation.start);
    on("#try-stop", generation.stop);
    on("#try-step", generation.step);
    on("#try-both", generation.both);
    on("#try-both-stop", generation.stopSides);
  },
};

if (typeof module !== "undefined") module.exports = { settings, countedLoop };
