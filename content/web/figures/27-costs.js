"use strict";
book.figure({
  id: "costs",
  number: 27,
  title: "What the lines cost together",
  controls: [
    book.choice(
      "shape",
      "Shape",
      [
        ["gpt2", "GPT-2 small"],
        ["gpt2-xl", "GPT-2 XL"],
        ["gpt3", "GPT-3"],
      ],
      "gpt2",
    ),
    book.range("prompt", "Tokens of the prompt", 64, 960, 512, 64),
  ],

  numbers({ shape: name, prompt }) {
    const shape = name === "gpt3" ? book.data.gpt3 : book.data.family[name];
    const weights = 2 * book.parameters(shape).total;
    const pair = book.cacheBytes(shape, 1);
    const pass = (past, fed, cached) => {
      const flops = book.pass(shape, past, fed);
      return { fed, flops, read: cached ? past * pair : 0, written: cached ? fed * pair : 0, intensity: flops / weights };
    };
    const passes = { prefill: pass(0, prompt, true), decode: pass(prompt, 1, true), naive: pass(0, prompt + 1, false) };
    return { name, prompt, weights, passes, ratio: passes.naive.flops / passes.decode.flops };
  },

  shown(n) {
    const mib = (bytes) => book.about(bytes / 2 ** 20);
    const column = ([name, pass]) => [
      [`${name}_fed`, book.int(pass.fed)],
      [`${name}_gflop`, book.about(pass.flops / 1e9)],
      [`${name}_read`, mib(pass.read)],
      [`${name}_written`, mib(pass.written)],
      [`${name}_intensity`, book.about(pass.intensity)],
    ];
    return {
      prompt: String(n.prompt),
      weights: book.about(n.weights / 2 ** 30),
      ratio: book.int(n.ratio),
      ...Object.fromEntries(Object.entries(n.passes).flatMap(column)),
    };
  },

  draw() {
    const row = (name, key) => {
      const shows = (pass) => (key === "weights" ? key : `${pass}_${key}`);
      const cell = (pass) => `<td${pass === "decode" ? ' class="lit"' : ""}>{${shows(pass)}}</td>`;
      return `<tr><th scope="row">${name}</th>${["prefill", "decode", "naive"].map(cell).join("")}</tr>`;
    };
    const rows = [
      row("positions", "fed"),
      row("GFLOP", "gflop"),
      row("weights read, GiB", "weights"),
      row("cache read, MiB", "read"),
      row("cache written, MiB", "written"),
      row("FLOPs a byte of weights", "intensity"),
    ];
    const heads = ["prefill", "decode", "no cache"].map((head) => `<th scope="col">${head}</th>`).join("");
    return `<table class="numbers small"><thead><tr><td></td>${heads}</tr></thead><tbody>${rows.join("")}</tbody></table>`;
  },

  words: () =>
    "In sixteen bits, after a prompt of {prompt} tokens: the decode step feeds {decode_fed} position, takes {decode_gflop} " +
      "GFLOP, and reads {weights} GiB of weights and {decode_read} MiB of cache. Without a cache the same token takes " +
      "{naive_gflop} GFLOP, {ratio} times as many. Each weight is counted as read once a pass, and logits are made at the " +
      "last position only.",
});
