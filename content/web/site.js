"use strict";
/* What every page does beside showing its text: the contents at the side, boxes that scroll by keyboard, listings that can be copied.
   Nothing here is needed to read; a page without JavaScript has the same text, contents and links. */

(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // ------------------------------------------------------------------------------------------------- contents at the side

  const contents = document.querySelector("details.contents");
  const pages = document.querySelector("details.pages");
  const wide = matchMedia("(min-width: 1100px)");

  /** At the side both lists stand open, above a narrow text both are closed. */
  const placeContents = () => {
    if (contents) contents.open = wide.matches;
    if (pages) pages.open = wide.matches;
  };

  /** Mark in the contents the section that is being read: the last one that begins in the window's upper quarter or above it; the last
   *  of all where the page ends. */
  const followReading = () => {
    const links = new Map(all("a[href^='#']", contents).map((link) => [document.getElementById(decodeURIComponent(link.hash.slice(1))), link]));
    const places = [...links.keys()].filter(Boolean);
    let marked = null;
    const mark = () => {
      const atEnd = scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
      const read = places.filter((place) => atEnd || place.getBoundingClientRect().top < innerHeight / 4);
      const link = read.length ? links.get(read.at(-1)) : null;
      if (link === marked) return;
      if (marked) marked.removeAttribute("aria-current");
      if (link) link.setAttribute("aria-current", "true");
      marked = link;
      if (link && wide.matches) keepInSight(link);
    };
    // a place that crosses the quarter's line changes the section, and so does the page's end, where it comes and goes
    const observer = new IntersectionObserver(mark, { rootMargin: "0px 0px -75% 0px" });
    places.forEach((place) => observer.observe(place));
    new IntersectionObserver(mark).observe(document.getElementById("end"));
    mark();
  };

  /** Scroll the side, and only the side, so that a link in it can be seen. */
  const keepInSight = (link) => {
    const box = link.closest(".side");
    const [inside, outside] = [link.getBoundingClientRect(), box.getBoundingClientRect()];
    if (inside.top < outside.top || inside.bottom > outside.bottom) box.scrollTop += inside.top - outside.top - outside.height / 2;
  };

  // -------------------------------------------------------------------------------------------------- boxes that scroll

  const names = { pre: "Listing", table: "Table", math: "Formula", img: "Picture" };

  const kindOf = (box) => (box.matches("pre") ? "pre" : box.querySelector("table, math, img")?.localName);

  /** A box that is wider inside than outside can be reached and scrolled by keyboard, and says what it is. */
  const makeScrollable = () => {
    const boxes = all("main :is(pre, .wide, .formula, .drawing, p:has(> img:only-child))");
    const look = () =>
      boxes.forEach((box, i) => {
        const scrolls = box.scrollWidth > box.clientWidth + 1;
        const given = { tabindex: "0", role: "region", "aria-label": `${names[kindOf(box)] || "Drawing"} ${i + 1}, scrolls sideways` };
        for (const [name, value] of Object.entries(given)) scrolls ? box.setAttribute(name, value) : box.removeAttribute(name);
      });
    const observer = new ResizeObserver(look);
    boxes.forEach((box) => observer.observe(box));
  };

  // ------------------------------------------------------------------------------------------------------------ listings

  /** Copy a listing; where the page may not write to the clipboard, select it, so that the reader can. */
  const copy = async (code, button) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  };

  const addCopyButtons = () => {
    for (const pre of all("main pre")) {
      const box = document.createElement("div");
      const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "Copy" });
      box.className = "listing";
      button.setAttribute("aria-live", "polite");
      button.addEventListener("click", () => copy(pre, button));
      pre.replaceWith(box);
      box.append(pre, button);
    }
  };

  // --------------------------------------------------------------------------------------------------------------- paper

  /** On paper all that can be opened is open. */
  addEventListener("beforeprint", () => all("main details:not([open])").forEach((details) => (details.open = true)));

  placeContents();
  wide.addEventListener("change", placeContents);
  if (contents) followReading();
  addCopyButtons();
  makeScrollable();
})();
