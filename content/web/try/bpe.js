"use strict";
/* Byte-level BPE, as examples/ch03/bpe.py has it: a text is cut into words, a word into bytes, and merges join these. */

var lab = lab || {};

(() => {
  // GPT-2's words: an English ending, letters, digits, other signs, each with a blank before it if there is one; then blanks that
  // stand alone. JavaScript's own \s differs from Unicode's by two characters, so the property is named.
  const WORDS =
    /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

  /** The 256 letters that bytes are written in, byte 0 first: a byte that Latin-1 shows as a sign keeps that sign, and the 68
      others, blanks and control characters, get those from U+0100 on. */
  function byteLetters() {
    let others = 256;
    const seen = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 255 && byte !== 173);
    return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(seen(byte) ? byte : others++));
  }

  /** A tokenizer of the facts in tokenizer.js: {pieces: [piece of each id], merges: [[left, right], ...], whole: {token: id}}. */
  lab.makeTokenizer = ({ pieces, merges, whole }) => {
    const letters = byteLetters();
    const bytes = new Map(letters.map((letter, byte) => [letter, byte]));
    const ids = new Map(pieces.map((piece, id) => [piece, id]));
    const ranks = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank])); // no piece holds a blank
    const known = new Map(); // {word: ids}: a text says the same words again and again
    const special = Object.keys(whole).sort((a, b) => b.length - a.length); // of two that begin alike the longer one first

    /** The ids of one word: of all pairs of neighbours the one of lowest rank is joined, until no pair has a rank. */
    function merged(word) {
      if (known.has(word)) return known.get(word);
      const parts = Array.from(new TextEncoder().encode(word), (byte) => letters[byte]);
      for (;;) {
        let [best, at] = [Infinity, 0];
        for (let i = 0; i + 1 < parts.length; i++) {
          const rank = ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
          if (rank < best) [best, at] = [rank, i];
        }
        if (best === Infinity) break;
        parts.splice(at, 2, parts[at] + parts[at + 1]);
      }
      const found = parts.map((part) => ids.get(part));
      if (word.length < 64) known.set(word, found);
      return found;
    }

    /** The ids [T] of a text; a special token in it, as <|endoftext|>, is one id. Half a surrogate pair is read as U+FFFD. */
    function encode(text) {
      const found = [];
      let rest = new TextDecoder("utf-8", { ignoreBOM: true }).decode(new TextEncoder().encode(text));
      while (rest) {
        const starts = special.map((token) => rest.indexOf(token)).map((at) => (at < 0 ? rest.length : at));
        const start = Math.min(rest.length, ...starts);
        for (const word of rest.slice(0, start).match(WORDS) ?? []) found.push(...merged(word));
        const token = special[starts.indexOf(start)];
        if (start === rest.length) break;
        found.push(whole[token]);
        rest = rest.slice(start + token.length);
      }
      return found;
    }

    /** The bytes that an id stands for. */
    function bytesOf(id) {
      if (!(id in pieces)) throw new Error(`id ${id} is outside the vocabulary, 0 to ${pieces.length - 1}`);
      if (pieces[id] in whole) return new TextEncoder().encode(pieces[id]);
      return Uint8Array.from(pieces[id], (letter) => bytes.get(letter));
    }

    /** The text of ids [T]: the bytes of all pieces, read as UTF-8; what is none becomes U+FFFD. */
    function decode(given) {
      const all = Uint8Array.from(Array.from(given, (id) => Array.from(bytesOf(id))).flat());
      return new TextDecoder("utf-8", { ignoreBOM: true }).decode(all);
    }

    /** One id as a reader may see it: a blank as ␣, a newline as ⏎, a byte that is no character by itself as its number. */
    function text(id) {
      const found = decode([id]);
      if (found.includes("\ufffd")) return Array.from(bytesOf(id), (byte) => `0x${byte.toString(16).toUpperCase().padStart(2, "0")}`).join(" ");
      return found.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/[\u0000-\u001f\u007f]/g, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}`);
    }

    return { encode, decode, text };
  };
})();
