"use strict";
/* From logits to one token, as examples/ch05/sampling.py has it: temperature, top-k, top-p, and a single random number.

   Python computes these in float32, so Math.fround rounds wherever Python stores a number. */

var lab = lab || {};

(() => {
  /** The probabilities [V] that a token is drawn with: exact zeros for what is cut, and at temperature 0 a single 1. */
  lab.probabilities = (logits, { temperature = 1, topK = null, topP = null } = {}) => {
    check(logits, temperature, topK, topP);
    if (temperature === 0) return Float64Array.from(logits, (_, id) => (id === lab.argmax(logits) ? 1 : 0));
    let left = withTemperature(logits, temperature); // [V]
    if (topK !== null) left = keepTopK(left, topK);
    if (topP !== null) left = keepTopP(left, topP);
    return softmax(left);
  };

  /** The id of the largest of logits [V], the lower one on a tie. */
  lab.argmax = (logits) => {
    let best = 0;
    for (let id = 1; id < logits.length; id++) if (logits[id] > logits[best]) best = id;
    return best;
  };

  /** One id of probabilities [V], which a uniform number picks: the first whose cumulative sum is above it. */
  lab.draw = (p, generator) => {
    const total = p.reduce((a, b) => a + b, 0); // 1 only up to rounding
    const below = generator.uniform() * total;
    let sum = 0;
    for (let id = 0; id < p.length; id++) {
      sum += p[id];
      if (sum > below) return id;
    }
    return p.length; // never: `below` is less than the total
  };

  /** The logits [V] less the largest, divided by the temperature: below 1 sharper, above 1 flatter. */
  function withTemperature(logits, temperature) {
    if (temperature === 1) return logits;
    const top = logits[lab.argmax(logits)];
    return Float32Array.from(logits, (x) => Math.fround(x - top) / temperature);
  }

  /** The ids of logits [V], best first, of equal ones the lower first: JavaScript's sort leaves equal ones in their order. */
  const bestFirst = (logits) => Array.from(logits, (_, id) => id).sort((a, b) => logits[b] - logits[a] || 0);

  /** Only the k best of logits [V] keep theirs; of equal ones the lower ids. */
  function keepTopK(logits, k) {
    const left = Float32Array.from(logits);
    for (const id of bestFirst(logits).slice(k)) left[id] = -Infinity;
    return left;
  }

  /** Only the smallest set of best tokens whose probability reaches p keep their logits [V]; of equal ones the lower ids.
      Counted from the worst on, as Python does it: a token stays if the mass from it down to the worst is above 1 - p. */
  function keepTopP(logits, p) {
    if (p === 1) return logits;
    const [order, probability, left] = [bestFirst(logits), softmax(logits), Float32Array.from(logits)];
    let mass = 0;
    for (const id of order.slice(1).reverse()) { // never the best one
      mass += probability[id];
      if (Math.fround(mass) <= Math.fround(1 - p)) left[id] = -Infinity;
    }
    return left;
  }

  /** e^x over the sum of all, of logits [V]; minus infinity gives exactly 0. */
  function softmax(logits) {
    const top = logits[lab.argmax(logits)];
    const powers = Float64Array.from(logits, (x) => Math.fround(Math.exp(Math.fround(x - top))));
    const sum = Math.fround(powers.reduce((a, b) => a + b, 0));
    return powers.map((x) => Math.fround(x / sum));
  }

  /** Throws an Error of one line for what cannot be computed. */
  function check(logits, temperature, topK, topP) {
    if (!(temperature >= 0 && temperature < Infinity)) throw new Error(`the temperature is ${temperature}; give a number from 0`);
    if (topK !== null && !(Number.isInteger(topK) && topK >= 1)) throw new Error(`top-k is ${topK}; give a whole number from 1`);
    if (topP !== null && !(topP > 0 && topP <= 1)) throw new Error(`top-p is ${topP}; give a number above 0 and up to 1`);
    if (!Number.isFinite(logits[lab.argmax(logits)]) || logits.some(Number.isNaN)) {
      throw new Error("the logits hold NaN or infinity, so no token has a probability");
    }
  }

  // ---------------------------------------------------------------------------------------------------------------- the loop

  /** How many positions a page feeds before it hands itself back to the browser. */
  lab.piece = 16;

  /** Feeds ids [T], at most `piece` at a time, behind what the cache holds. Yields nothing after each piece but the last, and returns
      the last position's logits [V], the same numbers as of one piece. */
  function* inPieces(model, ids, cache, piece) {
    for (let at = 0; ; at += piece) {
      const logits = lab.forwardCached(model, ids.slice(at, at + piece), cache); // [V]
      if (at + piece >= ids.length) return logits;
      yield;
    }
  }

  /** Chapter 5's loop, a step at each `next()`: run the model, choose a token, append it.
      Yields {id, logits [V], positions, ended}: how many positions this step computed, and whether the id is one that ends a text.
      piece: so many positions at a time, and between two pieces of a step it yields undefined.
      With the cache a step feeds what is new; without it, the whole text anew. It ends by itself after `tokens` tokens, an end
      token, or the model's last position. */
  lab.generate = function* (model, ids, tokens, options = {}) {
    const { temperature = 0, topK = null, topP = null, seed = 0, cached = true, piece = Infinity } = options;
    const [text, generator] = [Array.from(ids), lab.generator(seed)];
    let cache = lab.newCache(model);
    const most = Math.min(tokens, model.config.n_positions - ids.length + 1); // the last token is never fed
    for (let made = 0, ended = false; made < most && !ended; made++) {
      if (!cached) cache = lab.newCache(model); // a pass without a cache is one with an empty cache that nobody keeps
      const fed = text.slice(cache.length);
      const logits = yield* inPieces(model, fed, cache, piece); // [V]
      const id = temperature === 0 ? lab.argmax(logits) : lab.draw(lab.probabilities(logits, { temperature, topK, topP }), generator);
      text.push(id);
      ended = model.ends.includes(id);
      yield { id, logits, positions: fed.length, ended };
    }
  };

  // ---------------------------------------------------------------------------------------------------------- random numbers

  /** {uniform()}: numbers from 0 up to 1, the same as torch.rand in float64 draws from torch.Generator().manual_seed(seed).
      Matsumoto and Nishimura, "Mersenne Twister" (1998): 624 words of 32 bits, made anew when all are used. */
  lab.generator = (seed) => {
    if (!(Number.isSafeInteger(seed) && seed >= 0)) throw new Error(`the seed is ${seed}; give a whole number from 0`);
    const words = new Uint32Array(624);
    words[0] = seed % 2 ** 32;
    for (let i = 1; i < 624; i++) words[i] = Math.imul(1812433253, words[i - 1] ^ (words[i - 1] >>> 30)) + i;
    let used = 624;
    const twist = () => {
      for (let i = 0; i < 624; i++) {
        const y = (words[i] & 0x80000000) | (words[(i + 1) % 624] & 0x7fffffff);
        words[i] = words[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      used = 0;
    };
    const next = () => {
      if (used === 624) twist();
      let y = words[used++];
      y ^= y >>> 11;
      y ^= (y << 7) & 0x9d2c5680;
      y ^= (y << 15) & 0xefc60000;
      return (y ^ (y >>> 18)) >>> 0; // 32 bits
    };
    // Two words are 64 bits, and the lower 53 of them become a number with as many bits behind the point.
    return { uniform: () => ((next() % 2 ** 21) * 2 ** 32 + next()) / 2 ** 53 };
  };
})();
