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
    const [left, right, bottom] = [20, 384, 176];
    const x = (intensity) => left + ((right - left) * (Math.log2(intensity) + 1)) / 11; // 0.5 to 1,024, each step twice the last
    const marks = [1, 4, 16, 64, 256, 1024].map((mark) => [
      book.line(x(mark), bottom, x(mark), bottom + 5, "axis"),
      book.text(x(mark), bottom + 20, book.int(mark), mark === 1024 ? "end" : "middle"),
    ]);
    const low = x(n.ridge) < 200;
    const row = (y, name, key, at, shape) => [
      book.line(left, y, right, y, "line faint"),
      book.text(low ? right : left, y - 12, `${name}: {${key}}`, low ? "end" : "start", "strong"), // away from the ridge
      shape(x(at), y),
    ];
    return book.svg(
      232,
      "A scale of FLOPs a byte, each mark four times the last, with the prefill, the decode step and the machine’s ridge on it",
      book.rect(x(n.ridge), 32, right - x(n.ridge) + 6, bottom - 32, "c3 soft"),
      book.line(x(n.ridge), 24, x(n.ridge), bottom, "line dashed"),
      book.text(low ? x(n.ridge) + 6 : x(n.ridge) - 6, 20, "ridge: {ridge}", low ? "start" : "end", "strong"),
      row(92, "prefill", "prefill", n.prefill, (cx, cy) => book.circle(cx, cy, 7, "c1")),
      row(146, "decode step", "decode", n.decode, (cx, cy) => book.rect(cx - 6, cy - 6, 12, 12, "c2")),
      book.text(left, 54, low ? "" : "← waits for memory"),
      low ? book.text(right, 54, "waits for arithmetic →", "end") : "",
      book.line(left, bottom, right, bottom, "axis"),
      marks,
      book.text((left + right) / 2, 224, "FLOPs for each byte of weights", "middle"),
    );
  },

  words(n) {
    const machine = book.escape(book.data.machines[n.machine].name);
    const start = "By the weights alone, at {number} bytes a number, a prompt of {prompt} earns {prefill} FLOPs a byte, and a " +
      "decode step {decode}";
    const ridge = `The ridge of this machine (${machine}) is {ridge}, which a prompt reaches at {first} tokens`;
    const prompt = n.prefill >= n.ridge ? "This prompt waits for arithmetic" : "This prompt waits for memory, and reaches at " +
      "most {share} per cent of the arithmetic";
    return `${start}. ${ridge}. ${prompt}; the decode step waits for memory, and reaches at most {decode_share} per cent.`;
  },
});
