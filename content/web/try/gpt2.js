"use strict";
/* GPT-2's forward pass in plain JavaScript, as examples/ch04/gpt2_from_scratch.py has it, and chapter 10's cache.

   Shapes: T new positions, S positions that they may see (those in the cache and the T new ones), d model width, h heads, dh head
   width (d = h dh), f feed-forward width, V vocabulary, L layers. A matrix [T, d] is a Float32Array of T d numbers, row after row.
   Sums are made in JavaScript's own numbers, which have double precision, and rounded to float32 where they are stored. */

var lab = lab || {};

(() => {
  // ---------------------------------------------------------------------------------------------------------- the forward pass

  /** Logits [T * V] of the ids [T], or [V] of the last position alone where `last` is true.
      mask: false lets every position see all others. trace: an object that receives
      attention, L times [h * T * S], and sizes, L + 1 times [T], of the stream after the embedding and after each layer. */
  lab.forward = (model, ids, { mask = true, last = false, trace = null } = {}) => {
    const cache = newCache(model, ids.length); // a pass without a cache is one with an empty cache that nobody keeps
    const x = passOver(model, ids, cache, mask, trace); // [T, d]
    return unembed(model, last ? lastRow(x, model) : x); // [T, V] or [V]
  };

  /** As `forward`, of new ids [T] that follow what the cache holds; afterwards it holds them too. */
  lab.forwardCached = (model, ids, cache, { last = true, trace = null } = {}) => {
    const x = passOver(model, ids, cache, true, trace); // [T, d]
    return unembed(model, last ? lastRow(x, model) : x); // [V] or [T, V]
  };

  /** Room for the keys and values of all positions that the model has. */
  lab.newCache = (model) => newCache(model, model.config.n_positions);

  function newCache(model, capacity) {
    const { n_layer: L, n_embd: d } = model.config;
    const room = () => Array.from({ length: L }, () => new Float32Array(capacity * d)); // L times [capacity, d]
    return { length: 0, capacity, keys: room(), values: room() };
  }

  /** The stream [T, d] after the last layer of ids [T]. */
  function passOver(model, ids, cache, mask, trace) {
    check(model, ids, cache);
    const { n_layer: L, n_embd: d } = model.config;
    const x = embed(model, ids, cache.length); // [T, d]
    if (trace) Object.assign(trace, { attention: [], sizes: [sizes(x, d)] });
    for (let layer = 0; layer < L; layer++) {
      block(x, model, layer, cache, mask, trace); // [T, d]
      if (trace) trace.sizes.push(sizes(x, d)); // [T]
    }
    cache.length += ids.length; // only now: every layer has put its keys and values behind the same old ones
    return x;
  }

  /** The row of each token's id plus the row of its position: ids [T] from position `past` on; [T, d]. */
  function embed({ weights, config: { n_embd: d } }, ids, past) {
    const x = new Float32Array(ids.length * d); // [T, d]
    const [tokens, positions] = [weights["wte.weight"], weights["wpe.weight"]]; // [V, d] and [n_positions, d]
    for (let t = 0; t < ids.length; t++) {
      for (let i = 0; i < d; i++) x[t * d + i] = tokens[ids[t] * d + i] + positions[(past + t) * d + i];
    }
    return x;
  }

  /** One layer: two sublayers, each of which reads a normalised copy of the stream x [T, d] and adds to it, in place. */
  function block(x, model, layer, cache, mask, trace) {
    add(x, attention(layerNorm(x, model, `h.${layer}.ln_1`), model, layer, cache, mask, trace)); // [T, d]
    add(x, mlp(layerNorm(x, model, `h.${layer}.ln_2`), model, layer)); // [T, d]
  }

  /** What attention adds to the stream, from its normalised copy x [T, d]; [T, d]. */
  function attention(x, model, layer, cache, mask, trace) {
    const { n_embd: d, n_head: h } = model.config;
    const [past, T] = [cache.length, x.length / d];
    const qkv = linear(x, model, `h.${layer}.attn.c_attn`); // [T, 3d]
    const q = columns(qkv, 3 * d, 0, d); // [T, d], heads side by side
    const k = cache.keys[layer]; // [capacity, d], of which the first S rows are live
    const v = cache.values[layer]; // [capacity, d]
    k.set(columns(qkv, 3 * d, d, d), past * d);
    v.set(columns(qkv, 3 * d, 2 * d, d), past * d);
    const A = attentionWeights(q, k, past, d, h, mask); // [h, T, S]
    if (trace) trace.attention.push(A);
    return linear(mixed(A, v, T, d, h), model, `h.${layer}.attn.c_proj`); // [T, d]
  }

  /** The weights [h, T, S] with which each new position takes up each that it sees: softmax of q k / sqrt(dh), rows of sum 1.
      A hidden position has no score, and a weight of 0, which is what a score of minus infinity would give. */
  function attentionWeights(q, k, past, d, h, mask) {
    const [T, S, dh] = [q.length / d, past + q.length / d, d / h];
    const A = new Float32Array(h * T * S); // [h, T, S]
    const scores = new Float64Array(S); // [S], of one position in one head
    for (let head = 0; head < h; head++) {
      for (let t = 0; t < T; t++) {
        const seen = mask ? past + t + 1 : S;
        let top = -Infinity;
        for (let s = 0; s < seen; s++) {
          let sum = 0;
          for (let i = head * dh; i < (head + 1) * dh; i++) sum += q[t * d + i] * k[s * d + i];
          scores[s] = sum / Math.sqrt(dh);
          if (scores[s] > top) top = scores[s];
        }
        let sum = 0;
        for (let s = 0; s < seen; s++) sum += scores[s] = Math.exp(scores[s] - top);
        for (let s = 0; s < seen; s++) A[(head * T + t) * S + s] = scores[s] / sum;
      }
    }
    return A;
  }

  /** The values of the positions that are seen, each times its weight, added up: A [h, T, S] and v [S, d]; [T, d]. */
  function mixed(A, v, T, d, h) {
    const [S, dh] = [A.length / (h * T), d / h];
    const y = new Float32Array(T * d); // [T, d], heads side by side
    const sums = new Float64Array(dh); // [dh]
    for (let head = 0; head < h; head++) {
      for (let t = 0; t < T; t++) {
        sums.fill(0);
        for (let s = 0; s < S; s++) {
          const weight = A[(head * T + t) * S + s];
          if (weight === 0) continue; // hidden
          for (let i = 0; i < dh; i++) sums[i] += weight * v[s * d + head * dh + i];
        }
        y.set(sums, t * d + head * dh);
      }
    }
    return y;
  }

  /** What the feed-forward network adds to the stream, at each position by itself; [T, d]. */
  function mlp(x, model, layer) {
    const inner = linear(x, model, `h.${layer}.mlp.c_fc`); // [T, f]
    for (let i = 0; i < inner.length; i++) inner[i] = gelu(inner[i]);
    return linear(inner, model, `h.${layer}.mlp.c_proj`); // [T, d]
  }

  /** The form of GELU that GPT-2 was trained with, of one number. */
  const gelu = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));

  /** Each position's vector with mean 0 and variance 1 over d, times a gain, plus a shift, [d] each; x [T, d]; a new [T, d]. */
  function layerNorm(x, { weights, config: { n_embd: d, layer_norm_epsilon: epsilon } }, name) {
    const [gain, shift] = [weights[`${name}.weight`], weights[`${name}.bias`]]; // [d] each
    const y = new Float32Array(x.length); // [T, d]
    for (let at = 0; at < x.length; at += d) {
      let mean = 0;
      for (let i = 0; i < d; i++) mean += x[at + i] / d;
      let variance = 0;
      for (let i = 0; i < d; i++) variance += (x[at + i] - mean) ** 2 / d;
      const scale = 1 / Math.sqrt(variance + epsilon);
      for (let i = 0; i < d; i++) y[at + i] = (x[at + i] - mean) * scale * gain[i] + shift[i];
    }
    return y;
  }

  /** x W + b of x [T, n], W [n, m] as GPT-2's files store it, and b [m]; [T, m]. */
  function linear(x, { weights }, name) {
    const [W, b] = [weights[`${name}.weight`], weights[`${name}.bias`]]; // [n, m] and [m]
    const [n, m] = [W.length / b.length, b.length];
    const T = x.length / n;
    const y = new Float32Array(T * m); // [T, m]
    for (let t = 0; t < T; t++) y.set(b, t * m);
    for (let i = 0; i < n; i += 4) {
      const rows = [row(W, i, m), row(W, i + 1, m), row(W, i + 2, m), row(W, i + 3, m)]; // each [m]
      let t = 0;
      for (; t + 1 < T; t += 2) addTwo(row(y, t, m), row(y, t + 1, m), x, t * n + i, (t + 1) * n + i, ...rows);
      if (t < T) addOne(row(y, t, m), x, t * n + i, ...rows);
    }
    return y;
  }

  // Four rows of W at a time stay in the processor's nearest memory while all T positions use them; and what is read of them once
  // serves two positions. Both only make it faster: the sums are the same.

  /** y [m] plus four numbers of x, from x[at] on, times four rows of W, [m] each; in place. */
  function addOne(y, x, at, W0, W1, W2, W3) {
    const [a0, a1, a2, a3] = [x[at], x[at + 1], x[at + 2], x[at + 3]];
    for (let j = 0; j < y.length; j++) y[j] += a0 * W0[j] + a1 * W1[j] + a2 * W2[j] + a3 * W3[j];
  }

  /** The same of two positions. */
  function addTwo(y, z, x, at, next, W0, W1, W2, W3) {
    const [a0, a1, a2, a3] = [x[at], x[at + 1], x[at + 2], x[at + 3]];
    const [b0, b1, b2, b3] = [x[next], x[next + 1], x[next + 2], x[next + 3]];
    for (let j = 0; j < y.length; j++) {
      const w0 = W0[j];
      const w1 = W1[j];
      const w2 = W2[j];
      const w3 = W3[j];
      y[j] += a0 * w0 + a1 * w1 + a2 * w2 + a3 * w3;
      z[j] += b0 * w0 + b1 * w1 + b2 * w2 + b3 * w3;
    }
  }

  /** The last stream x [T, d] to logits [T, V]: the final norm, then each position's product with every row of the token table. */
  function unembed(model, x) {
    const { n_embd: d, vocab_size: V } = model.config;
    const [normed, table] = [layerNorm(x, model, "ln_f"), model.weights["wte.weight"]]; // [T, d] and [V, d]
    const logits = new Float32Array((x.length / d) * V); // [T, V]
    for (let at = 0, t = 0; at < x.length; at += d, t++) {
      for (let id = 0; id < V; id += 4) {
        let [s0, s1, s2, s3] = [0, 0, 0, 0]; // of four ids, since four sums can go on while one waits for itself
        for (let i = 0, w = id * d; i < d; i++, w++) {
          const a = normed[at + i];
          s0 += a * table[w];
          s1 += a * table[w + d];
          s2 += a * table[w + 2 * d];
          s3 += a * table[w + 3 * d];
        }
        logits.set([s0, s1, s2, s3], t * V + id);
      }
    }
    return logits;
  }

  // ------------------------------------------------------------------------------------------------------------- small parts

  /** x plus y, in place; the same shape. */
  function add(x, y) {
    for (let i = 0; i < x.length; i++) x[i] += y[i];
  }

  /** Columns `from` to `from + count` of a matrix [T, width]; [T, count]. */
  function columns(matrix, width, from, count) {
    const found = new Float32Array((matrix.length / width) * count);
    for (let t = 0; t * width < matrix.length; t++) {
      found.set(matrix.subarray(t * width + from, t * width + from + count), t * count);
    }
    return found;
  }

  /** Row i of a matrix [., width], not copied; [width]. */
  const row = (matrix, i, width) => matrix.subarray(i * width, (i + 1) * width);

  const lastRow = (x, model) => x.subarray(x.length - model.config.n_embd); // [1, d]

  /** How large each position's vector is in the stream x [T, d], as chapter 4 counts it, the root of the mean of squares; [T]. */
  function sizes(x, d) {
    const size = (values) => Math.sqrt(values.reduce((a, b) => a + b * b, 0) / d);
    return Float32Array.from({ length: x.length / d }, (_, t) => size(row(x, t, d)));
  }

  /** Throws for ids that the model does not have, none, or more than it has positions for. */
  function check(model, ids, cache) {
    const { vocab_size: V, n_positions: most } = model.config;
    if (!ids.length) throw new Error("there are no tokens; give at least one");
    if (cache.length + ids.length > most) {
      throw new Error(`${cache.length + ids.length} tokens are more than the model's ${most} positions; give a shorter text`);
    }
    const bad = Array.from(ids).find((id) => !Number.isInteger(id) || id < 0 || id >= V);
    if (bad !== undefined) throw new Error(`id ${bad} is outside the vocabulary, 0 to ${V - 1}`);
  }

  // -------------------------------------------------------------------------------------------------------- who hears whom

  /** Chapter 4's table [T * T]: entry [i][j] is the largest change of the logits at position i when only the id at j changes.
      A causal model has exact zeros where j > i. They are not assumed: each column is a whole pass of its own. */
  lab.influence = (model, ids, { mask = true } = {}) => {
    const T = ids.length;
    const before = lab.forward(model, ids, { mask }); // [T, V]
    const table = new Float32Array(T * T); // [T, T]
    for (let j = 0; j < T; j++) lab.influenceColumn(model, ids, before, j, { mask }).forEach((x, i) => (table[i * T + j] = x));
    return table;
  };

  /** One column [T] of that table, for a page that shows them as they come; before: the logits [T, V] of `ids` as they are. */
  lab.influenceColumn = (model, ids, before, j, { mask = true } = {}) => {
    const { vocab_size: V } = model.config;
    const other = Array.from(ids, (id, t) => (t === j ? (id + Math.floor(V / 2)) % V : id)); // [T]
    const after = lab.forward(model, other, { mask }); // [T, V]
    const column = new Float32Array(ids.length); // [T]
    for (let i = 0; i < after.length; i++) {
      const at = Math.floor(i / V);
      column[at] = Math.max(column[at], Math.abs(Math.fround(before[i] - after[i])));
    }
    return column;
  };

  // ------------------------------------------------------------------------------------------------------------- the weights

  /** The model in what weights.js holds: {config, ends: [ids that end a text], weights: {name: Float32Array}}.
      Throws an Error of one line. */
  lab.loadModel = (file) => {
    if (!file || !file.data || !file.tensors) throw new Error("the model's weights are not here; weights.js did not load");
    const numbers = float32(bytesOf(file.data)); // all tensors, one after the other
    const weights = {};
    for (const [name, shape, offset] of file.tensors) {
      const count = shape.reduce((a, b) => a * b, 1);
      if (offset + count > numbers.length) throw new Error(`weights.js is cut short: it ends before ${name}; load the page again`);
      weights[name] = numbers.subarray(offset, offset + count);
    }
    return { config: file.config, ends: file.ends, weights };
  };

  const BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

  /** The bytes that a base64 text stands for: four letters of six bits each are three bytes. */
  function bytesOf(text) {
    const bits = new Uint8Array(128); // [letter's code]; the "=" that fills up the end counts as 0
    for (let i = 0; i < 64; i++) bits[BASE64.charCodeAt(i)] = i;
    const six = (i) => bits[text.charCodeAt(i)];
    const bytes = new Uint8Array((text.length / 4) * 3);
    for (let i = 0, to = 0; i < text.length; i += 4) {
      const four = (six(i) << 18) | (six(i + 1) << 12) | (six(i + 2) << 6) | six(i + 3); // 24 bits
      bytes[to++] = four >> 16;
      bytes[to++] = four >> 8; // an array of bytes keeps the lowest eight bits
      bytes[to++] = four;
    }
    return bytes.subarray(0, bytes.length - (text.length - text.replace(/=+$/, "").length));
  }

  /** Bytes of float16 numbers, the lower byte first, as a Float32Array of the same numbers. */
  function float32(bytes) {
    // One sign bit, five of exponent, ten of fraction. There are only 65,536 of them, so each is worked out once.
    const values = Float32Array.from({ length: 65536 }, (_, half) => {
      const [sign, exponent, fraction] = [half >> 15 ? -1 : 1, (half >> 10) & 31, half & 1023];
      if (exponent === 31) return fraction ? NaN : sign * Infinity;
      return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : (fraction / 1024) * 2 ** -14);
    });
    const numbers = new Float32Array(bytes.length / 2);
    for (let i = 0; i < numbers.length; i++) numbers[i] = values[bytes[2 * i] | (bytes[2 * i + 1] << 8)];
    return numbers;
  }
})();
