"use strict";
/* Byte-level BPE, as examples/ch03/bpe.py has it: a text is cut into words, a word into bytes, and merges join these.

   The facts come from tokenizer.js, `book_model.tokenizer`: pieces, the piece of each id; merges, pairs of pieces, the first merged
   first; whole, {token: id} of what is never cut; letters and digits, which characters are such. */

var lab = lab || {};

(() => {
  lab.makeTokenizer = (facts) => {
    const { pieces, merges, whole } = facts;
    const words = wordPattern(characters(facts.letters), characters(facts.digits));
    const letterOf = byteLetters(); // [256]
    const byteOf = new Map(letterOf.map((letter, byte) => [letter, byte]));
    const ids = new Map(pieces.map((piece, id) => [piece, id]));
    const ranks = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank])); // no piece holds a blank
    const tokens = Object.keys(whole).sort((a, b) => b.length - a.length); // of two that begin alike the longer one is found

    /** The ids [T] of a text. */
    function encode(text) {
      const found = [];
      let rest = wellFormed(text);
      while (rest) {
        const { token, start } = firstToken(rest);
        for (const word of rest.slice(0, start).match(words) ?? []) found.push(...merged(word));
        if (token) found.push(whole[token]);
        rest = rest.slice(start + token.length);
      }
      return found;
    }

    /** The first token in a text that is never cut, as <|endoftext|>, and where it starts; "" at the text's end without any. */
    function firstToken(text) {
      let first = { token: "", start: text.length };
      for (const token of tokens) {
        const start = text.indexOf(token);
        if (start >= 0 && start < first.start) first = { token, start };
      }
      return first;
    }

    /** The ids of one word: of all pairs of neighbours the one of lowest rank is joined, until no pair has a rank. */
    function merged(word) {
      const parts = Array.from(new TextEncoder().encode(word), (byte) => letterOf[byte]);
      for (;;) {
        let [lowest, at] = [Infinity, 0];
        for (let i = 0; i + 1 < parts.length; i++) {
          const rank = ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
          if (rank < lowest) [lowest, at] = [rank, i];
        }
        if (lowest === Infinity) return parts.map((part) => ids.get(part));
        parts.splice(at, 2, parts[at] + parts[at + 1]);
      }
    }

    /** The bytes that an id stands for. */
    function bytesOf(id) {
      const piece = pieces[id];
      if (piece === undefined) throw new Error(`id ${id} is outside the vocabulary, 0 to ${pieces.length - 1}`);
      if (tokens.includes(piece)) return Array.from(new TextEncoder().encode(piece));
      return Array.from(piece, (letter) => byteOf.get(letter));
    }

    /** The text of ids [T]: the bytes of all pieces, read as UTF-8; what is none becomes U+FFFD. */
    function decode(given) {
      const bytes = Uint8Array.from(Array.from(given, bytesOf).flat());
      return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes); // else it would take a mark at the beginning away
    }

    /** One id as a reader may see it: a blank as ␣, a newline as ⏎, bytes that are no whole character as their numbers. */
    function text(id) {
      const hex = (number) => number.toString(16).toUpperCase().padStart(2, "0");
      const found = decode([id]);
      if (found.includes("\ufffd")) return bytesOf(id).map((byte) => `0x${hex(byte)}`).join(" ");
      const shown = found.replaceAll(" ", "␣").replaceAll("\n", "⏎");
      return shown.replace(/[\u0000-\u001f\u007f]/g, (sign) => `0x${hex(sign.charCodeAt(0))}`);
    }

    return { encode, decode, text };
  };

  /** GPT-2's words: an English ending, letters, digits, other signs, each with a blank before it if there is one; then blanks that
      stand alone. GPT-2 wrote \p{L} for a letter and \p{N} for a digit. Here they are listed, since each browser has the letters of
      the Unicode of its own year, and the library that trained the model has those of another. And \s of JavaScript is not
      Unicode's white space: it has U+FEFF and lacks U+0085. */
  function wordPattern(letters, digits) {
    const [blank, sign] = ["\\p{White_Space}", "\\P{White_Space}"];
    const other = `[^\\p{White_Space}${letters}${digits}]`;
    const kinds = [` ?[${letters}]+`, ` ?[${digits}]+`, ` ?${other}+`, `${blank}+(?!${sign})`, `${blank}+`];
    return new RegExp(["'s|'t|'re|'ve|'m|'ll|'d", ...kinds].join("|"), "gu");
  }

  /** The inside of a pattern's [...] for characters that are given in runs: [how many others, how many such, how many others, ...],
      from U+0000 on. */
  function characters(runs) {
    const escaped = (code) => `\\u{${code.toString(16)}}`;
    let [next, pattern] = [0, ""];
    for (let i = 0; i < runs.length; i += 2) {
      const first = next + runs[i];
      next = first + runs[i + 1];
      pattern += `${escaped(first)}-${escaped(next - 1)}`;
    }
    return pattern;
  }

  /** The 256 letters that bytes are written in, byte 0 first: a byte that Latin-1 shows as a sign keeps that sign, and the 68
      others, blanks and control characters, get those from U+0100 on. */
  function byteLetters() {
    let others = 256;
    const seen = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 255 && byte !== 173);
    return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(seen(byte) ? byte : others++));
  }

  /** The text as it is once it has been written in UTF-8, as every text has that reaches Python: half of a pair is U+FFFD then. */
  const wellFormed = (text) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(new TextEncoder().encode(text));
})();
