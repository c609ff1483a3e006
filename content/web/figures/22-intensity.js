"use strict";
book.figure({
  id: "intensity",
  number: 22,
  title: "FLOPs for each byte of weights, beside a machine’s ridge",
  controls: [
    book.range("power", "Tokens of the prompt", 0, 10, 4, 1, (power) => book.int(2 ** power)),
    book.choice(
      "machine",
      "Machine",
      [
        [0, "ours, float32"],
        [1, "ours, bfloat16"],
        [2, "H100, by its data sheet"],
      ],
      2,
    ),
  ],

  numbers({ power, machine }) {
    const { number, ridge } = book.data.machines[machine];
    const prompt = 2 ** power;
    const earned = (tokens) => (2 * tokens) / number; // 2 FLOPs a weight and token, over the bytes of a weight
    const [prefill, decode] = [earned(prompt), earned(1)];
    const first = Math.ceil((ridge * number) / 2);
    return { prompt, machine, number, ridge, prefill, decode, first, share: Math.min(1, prefill / ridge) };
  },

  shown: (n) => ({
    prompt: book.int(n.prompt),
    prefill: n.prefill < 1 ? book.fixed(n.prefill, 1) : book.int(n.prefill),
    decode: n.decode < 1 ? book.fixed(n.decode, 1) : book.int(n.decode),
    ridge: book.fixed(n.ridge, 1),
    number: String(n.number),
    first: book.int(n.first),
    share: book.fixed(100 * n.share, 1),
    decode_share: book.fixed((100 * n.decode) / n.ridge, 1),
  }),

  draw(n) {
    const [left, right, bottom] = [20, 376, 190];
    const x = (intensity) => left + ((right - left) * (Math.log2(intensity) + 2)) / 12; // 0.25 to 1,024, each step twice the last
    const marks = [0.25, 1, 4, 16, 64, 256, 1024].map((mark) => [
      book.line(x(mark), bottom, x(mark), bottom + 5, "axis"),
      book.text(x(mark), bottom + 20, mark < 1 ? String(mark) : book.int(mark), "middle"),
    ]);
    const ridge = x(n.ridge);
    // a point, and above it its name and number, on its own side of the ridge
    const point = (y, name, key, half, shape) => {
      const at = x(n[key]);
      const [least, most] = n[key] < n.ridge ? [6 + half, ridge - 6 - half] : [ridge + 6 + half, 398 - half];
      const middle = Math.max(least, Math.min(most, at));
      const label = [name, `{${key}}`].map((line, i) => book.text(middle, y - 29 + 16 * i, line, "middle", "strong"));
      return [book.line(left, y, right, y, "line faint"), label, shape(at, y)];
    };
    const low = ridge < 200;
    const zone = (at, anchor, what) => ["waits for", what].map((line, i) => book.text(at, 46 + 16 * i, line, anchor, "small"));
    return book.svg(
      246,
      "A scale of FLOPs a byte, each mark four times the last, with the prefill, the decode step and the machine’s ridge on it",
      book.rect(ridge, 30, 398 - ridge, bottom - 30, "c3 soft"),
      book.line(ridge, 24, ridge, bottom, "line dashed"),
      book.text(low ? ridge + 6 : ridge - 6, 20, "ridge: {ridge}", low ? "start" : "end", "strong"),
      zone(ridge - 4, "end", "memory"),
      zone(ridge + 4, "start", "arithmetic"),
      point(116, "prefill", "prefill", 28, (cx, cy) => book.circle(cx, cy, 7, "c1")),
      point(172, "decode step", "decode", 44, (cx, cy) => book.rect(cx - 6, cy - 6, 12, 12, "c2")),
      book.line(left, bottom, right, bottom, "axis"),
      marks,
      book.text((left + right) / 2, 238, "FLOPs for each byte of weights", "middle"),
    );
  },

  words(n) {
    const machine = book.escape(book.data.machines[n.machine].name);
    const start = "By the weights alone, at {number} bytes a number, a prompt of {prompt} " +
      `${n.prompt === 1 ? "token" : "tokens"} earns {prefill} ${n.prefill === 1 ? "FLOP" : "FLOPs"} a byte, and a ` +
      "decode step {decode}";
    const ridge = `The ridge of this machine (${machine}) is {ridge}, which a prompt reaches at {first} tokens`;
    const prompt = n.prefill >= n.ridge ? "This prompt waits for arithmetic" : "This prompt waits for memory, and reaches at " +
      "most {share} per cent of the arithmetic";
    return `${start}. ${ridge}. ${prompt}; the decode step waits for memory, and reaches at most {decode_share} per cent.`;
  },
});
