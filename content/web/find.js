"use strict";
/* The search over the whole book: a box in the header, places as one types. Its index, assets/search.js, is loaded when the box is
   first used; scripts/web_edition/search.py says what stands in it. */

(() => {
  const SHOWN = 24; // as many places are listed; the count names them all
  const WORD = /[\p{L}\p{N}]+(?:[.,]\p{N}+)*/gu; // as the index cuts words

  // ------------------------------------------------------------------------------------------------- pure: a text's places

  /** The words of what was typed, as the index writes them. */
  const wordsOf = (text) => (text.toLowerCase().match(WORD) || []).map((word) => word.replace(/(?<=\d),(?=\d)/g, ""));

  /** Where in the sorted `keys` the first one is that does not stand before `word`. */
  const lowerBound = (keys, word) => {
    let [from, to] = [0, keys.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (keys[middle] < word) from = middle + 1;
      else to = middle;
    }
    return from;
  };

  /** {section: weight} of a word and of all that begin with it; the whole word and a word in a heading weigh more. */
  const placesOf = (word, keys, index) => {
    const found = new Map();
    for (let i = lowerBound(keys, word); i < keys.length && keys[i].startsWith(word); i++) {
      const whole = keys[i] === word ? 1 : 0;
      let section = 0;
      for (const part of index.words[keys[i]].split(",")) {
        const inHeading = part.endsWith("*");
        section += parseInt(part, 36); // an asterisk ends the number
        found.set(section, Math.max(found.get(section) || 0, 1 + whole + (inHeading ? 2 + whole : 0)));
      }
    }
    return found;
  };

  /** The sections that hold all words of `text`, the best first: [page, anchor, heading, definition or nothing]; among equals the index's
   *  order is kept. null where `text` has no word to find. */
  const search = (text, keys, index) => {
    const words = wordsOf(text).filter((word) => word.length > 1 && !index.common.includes(word));
    if (!words.length) return null;
    const [first, ...others] = words.map((word) => placesOf(word, keys, index));
    return [...first]
      .filter(([section]) => others.every((places) => places.has(section)))
      .map(([section, weight]) => [section, others.reduce((sum, places) => sum + places.get(section), weight)])
      .sort((a, b) => b[1] - a[1] || a[0] - b[0])
      .map(([section]) => index.sections[section]);
  };

  // ------------------------------------------------------------------------------------------------------------ in the page

  const input = document.getElementById("find");
  const box = input.closest(".find");
  const panel = box.querySelector(".panel");
  const list = document.getElementById("found");
  const said = panel.querySelector(".said");
  const status = document.getElementById("found-count");
  let keys = null; // the index's words, sorted, once it is loaded
  let active = null; // the option that the arrow keys have chosen

  const load = () => {
    if (document.getElementById("search-index")) return;
    const script = Object.assign(document.createElement("script"), { id: "search-index", src: "assets/search.js" });
    script.addEventListener("load", () => {
      keys = Object.keys(window.book_search.words).sort((a, b) => (a < b ? -1 : 1));
      show();
    });
    script.addEventListener("error", () => say("The index of this book is not there."));
    document.head.append(script);
  };

  const say = (text) => {
    said.textContent = text;
    status.textContent = text;
  };

  const choose = (option) => {
    if (active) active.setAttribute("aria-selected", "false");
    active = option;
    if (!option) return input.removeAttribute("aria-activedescendant");
    option.setAttribute("aria-selected", "true");
    input.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest", behavior: "instant" });
  };

  const open = (isOpen) => {
    panel.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen && list.childElementCount > 0));
    if (!isOpen) choose(null);
  };

  const option = ([number, anchor, heading, said], i) => {
    const [page, title] = window.book_search.pages[number];
    const link = Object.assign(document.createElement("a"), { id: `found-${i}`, href: `${page}.html${anchor ? `#${anchor}` : ""}`, tabIndex: -1 });
    link.setAttribute("role", "option");
    link.setAttribute("aria-selected", "false");
    const [name, where] = [document.createElement("b"), document.createElement("small")];
    name.textContent = heading;
    where.textContent = said ? `${title}: ${said}` : title;
    link.append(name, " ", where);
    return link;
  };

  const show = () => {
    if (!keys) return;
    choose(null);
    const text = input.value.trim();
    const found = search(text, keys, window.book_search);
    const places = found || [];
    list.replaceChildren(...places.slice(0, SHOWN).map(option));
    list.hidden = !places.length;
    panel.scrollTop = 0;
    if (!text) say("");
    else if (!found) say("Type at least two letters of a word that is not in every section.");
    else if (!places.length) say("No section holds all these words.");
    else say(`${places.length} ${places.length === 1 ? "section" : "sections"}${places.length > SHOWN ? `, the first ${SHOWN} shown` : ""}`);
    open(Boolean(text));
  };

  input.addEventListener("focus", load);
  input.addEventListener("input", show);
  input.addEventListener("click", () => input.value.trim() && show());

  input.addEventListener("keydown", (event) => {
    const options = [...list.children];
    if (event.key === "Escape" && !panel.hidden) open(false);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (panel.hidden) show();
      else if (options.length) {
        const at = options.indexOf(active); // -1: none yet
        choose(options.at(event.key === "ArrowDown" ? (at + 1) % options.length : Math.max(at, 0) - 1));
      }
    } else if (event.key === "Enter" && !panel.hidden && options.length) (active || options[0]).click();
    else return;
    event.preventDefault();
  });

  list.addEventListener("click", () => open(false)); // a section of this page is gone to without leaving it
  box.addEventListener("focusout", (event) => box.contains(event.relatedTarget) || open(false));
  panel.addEventListener("pointerdown", (event) => event.preventDefault()); // the focus stays in the box, so the list stays
})();
