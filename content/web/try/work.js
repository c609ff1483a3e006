"use strict";
/* How "Try it" computes without freezing the page, and how its tables are walked by keyboard. Nothing here knows the model. */

/** Jobs, one a part of the page. A job is a generator function: each `yield` hands the page back to the browser for a moment. A job
    runs only while its part is in view, or above what is: a part that is filled later would push away what the reader looks at. It
    begins anew when something that it depends on has changed. */
const jobs = {
  all: [],
  timer: null,

  add(name, element, make) {
    const job = { name, element, make, due: false, visible: false, running: null };
    jobs.all.push(job);
    const watch = (seen) => {
      job.visible = seen.at(-1).isIntersecting;
      jobs.wake();
    };
    new IntersectionObserver(watch, { rootMargin: "1000000px 0px 200px" }).observe(element);
  },

  /** These jobs have to be done anew. */
  due(...names) {
    for (const job of jobs.all.filter(({ name }) => names.includes(name))) {
      Object.assign(job, { due: true, running: null });
      job.element.setAttribute("aria-busy", "true");
    }
    jobs.wake();
  },

  wake() {
    if (jobs.timer === null) jobs.timer = setTimeout(jobs.slice, 0);
  },

  /** One slice of the first job that has something to do. */
  slice() {
    jobs.timer = null;
    const job = jobs.all.find((one) => (one.due || one.running) && (one.visible || landing.isAfter(one.element)));
    if (!job) return;
    if (job.due) Object.assign(job, { due: false, running: job.make() });
    if (job.running.next().done) {
      job.running = null;
      job.element.removeAttribute("aria-busy");
      landing.go();
    }
    jobs.wake();
  },
};

/** A link into the page while parts before its goal are empty. Filled, they push the goal away, so it is gone to again when they are
    done, unless the reader has done something in the meantime. */
const landing = {
  goal: null,

  /** hash: "#who-hears-whom", of the address or of a link. */
  at: (hash) => (landing.goal = document.getElementById(decodeURIComponent(hash.slice(1)))),

  /** Whether the goal comes after an element. */
  isAfter: (element) => landing.goal && element.compareDocumentPosition(landing.goal) & Node.DOCUMENT_POSITION_FOLLOWING,

  /** To the goal, if the parts before it are done; when that moves nothing any more, the reader has landed. */
  go() {
    if (!landing.goal || jobs.all.some((job) => (job.due || job.running) && landing.isAfter(job.element))) return;
    const before = scrollY;
    landing.goal.scrollIntoView({ behavior: "instant" });
    if (scrollY === before) landing.goal = null;
  },

  open() {
    for (const act of ["wheel", "touchstart", "pointerdown", "keydown"]) {
      addEventListener(act, () => (landing.goal = null), { capture: true, passive: true });
    }
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#']");
      if (link) landing.at(link.hash);
      jobs.wake();
    });
    addEventListener("scrollend", landing.go); // a smooth scroll still goes to where the goal was
    landing.at(location.hash);
  },
};

/** The tables of views.grid within `element`: one cell takes part in the tab order, the arrow keys, Home and End go from cell to
    cell, and the cell under the focus or the pointer is told by `say(row, column)` in `output`. */
function walkable(element, output, say) {
  const place = (cell) => [Number(cell.dataset.row), Number(cell.dataset.column)];
  const tell = (event) => {
    const cell = event.target.closest("td[data-row]");
    if (!cell) return;
    output.textContent = say(...place(cell));
    if (event.type !== "focusin") return;
    element.querySelectorAll('td[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
    cell.tabIndex = 0;
  };
  element.addEventListener("focusin", tell);
  element.addEventListener("mouseover", tell);
  element.addEventListener("keydown", (event) => {
    const cell = event.target.closest("td[data-row]");
    if (!cell) return;
    const [row, column] = place(cell);
    const last = cell.parentElement.cells.length - 2; // the first is the row's head
    const to = {
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      Home: [row, 0],
      End: [row, last],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    element.querySelector(`td[data-row="${to[0]}"][data-column="${to[1]}"]`)?.focus();
  });
}
