"use strict";
/* A number with a record: a click on it, Enter or Space open the record beside it. Without JavaScript, or in a browser that has no
   popover, the number is a link to the record's entry on the page of all records. */

(() => {
  const store = document.getElementById("records");
  if (!store || !HTMLElement.prototype.showPopover) return;
  /** {id: {claim, kind, command, model, machine, threads, date, limits}}; no command where it is the usual one */
  const records = JSON.parse(store.textContent);

  const meanings = {
    exact: "exact: follows from the program, the same on every machine; the tests compute it again",
    tolerance: "tolerance: stays within a stated bound; the tests measure it again",
    observation: "observation: what was seen on the inputs, the model and the machine named here",
    timing: "timing: a time measured on the machine named here; another machine gives another",
  };

  const made = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  const box = made("div", { id: "record", popover: "auto", tabIndex: -1 });
  box.setAttribute("role", "dialog");
  box.setAttribute("aria-labelledby", "record-pressed record-claim");
  let opener = null;

  const idOf = (link) => decodeURIComponent(link.hash.slice(1));

  /** What was pressed, as it is shown, and where it stands in the record: a path into its values, or from its own fields on. */
  const pressed = (link) => {
    const at = made("code", { textContent: link.dataset.at.replace(/^\./, "") });
    const where = link.dataset.at.startsWith(".") ? "in the record" : "in the record's values";
    const table = link.closest(".source");
    const words = [table ? "This table" : made("b", { textContent: link.textContent }), table ? " is " : " stands at ", at, ` ${where}.`];
    return made("p", { id: "record-pressed", className: "pressed" }, ...words);
  };

  /** The command that makes a record of the repository; what was printed elsewhere has none. */
  const commandOf = (id, record) => record.command || (!record.kind.startsWith("published") && `make evidence ONLY=${id}`);

  /** The rows of a record that has them: [name, text or element]. */
  const rows = (record, command) => [
    ["Kind", meanings[record.kind] || record.kind],
    ["Made by", command && made("code", { textContent: command })],
    ["Model", record.model],
    ["Machine", record.machine],
    ["Threads", record.threads],
    ["Date", record.date],
    ["Does not show", record.limits],
  ];

  const fill = (link) => {
    const [id, record] = [idOf(link), records[idOf(link)]];
    const list = made("dl");
    for (const [name, value] of rows(record, commandOf(id, record))) {
      if (value) list.append(made("dt", { textContent: name }), made("dd", {}, value));
    }
    const close = made("button", { type: "button", className: "close", textContent: "Close" });
    close.addEventListener("click", () => box.hidePopover());
    box.replaceChildren(
      pressed(link),
      made("p", { id: "record-claim", className: "claim", textContent: record.claim }),
      list,
      made("p", { className: "more" }, made("a", { href: link.getAttribute("href"), textContent: "The whole record" }), close),
    );
  };

  /** Below the number where there is room, else above it; always inside the window's width. */
  const place = (link) => {
    const line = link.getClientRects()[0];
    const [width, height] = [box.offsetWidth, box.offsetHeight];
    const room = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(line.left, room - width - 8));
    const below = line.bottom + height + 16 < innerHeight || line.top < height + 16;
    box.style.left = `${left + scrollX}px`;
    box.style.top = `${(below ? line.bottom + 8 : line.top - height - 8) + scrollY}px`;
  };

  const open = (link) => {
    box.hidePopover();
    opener = link;
    fill(link);
    link.after(box); // so that reading and Tab go on after the number
    box.showPopover();
    place(link);
    link.setAttribute("aria-expanded", "true");
    box.focus({ preventScroll: true });
    box.scrollIntoView({ block: "nearest" });
  };

  /** Closed by Escape, by its button or by a click elsewhere: the focus goes back to the number, unless the reader put it elsewhere. */
  box.addEventListener("beforetoggle", (event) => {
    if (event.newState !== "closed") return;
    opener.removeAttribute("aria-expanded");
    if (box.contains(document.activeElement)) opener.focus({ preventScroll: true });
  });

  /** Tab out of the box closes it: forwards to what follows the number, backwards to the number. */
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Tab") return;
    const stops = [...box.querySelectorAll("a, button")];
    const at = document.activeElement;
    if (!(event.shiftKey ? at === box || at === stops[0] : at === stops.at(-1))) return;
    box.hidePopover();
    if (event.shiftKey) event.preventDefault();
  });

  // a press on the number whose record stands open closes it, as a press anywhere outside does; the click must not open it again
  let closing = null;
  document.addEventListener("pointerdown", () => (closing = box.matches(":popover-open") ? opener : null), true);

  for (const link of document.querySelectorAll("a[data-at]")) {
    if (!records[idOf(link)]) continue;
    link.setAttribute("aria-haspopup", "dialog");
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab was asked for
      event.preventDefault();
      if (closing !== link) open(link);
      closing = null;
    });
    link.addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      open(link);
    });
  }
})();
