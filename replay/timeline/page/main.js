// Begin: lay out, listen, show everything.

const PRINTED_ROWS = 40;
const PRINTED_WIDTH = 1000;

function resized() {
  const scroll = find("scroll");
  const label = find("labels").offsetWidth;
  const wasWhole = view.width === 0 || view.span >= fitted().span * 0.999;
  const rowsThere = view.lanes.length * ROW;
  view.width = Math.max(60, (view.printing ? PRINTED_WIDTH : scroll.clientWidth) - label);
  view.height = view.printing ? Math.min(rowsThere, PRINTED_ROWS * ROW) : scroll.clientHeight;
  find("tall").style.height = `${view.printing ? view.height : Math.max(rowsThere, view.height)}px`;
  find("stage").style.height = `${view.height}px`;
  find("map").style.width = `${view.width}px`;
  find("count").textContent = many(view.lanes.length, "object");
  find("empty").hidden = view.lanes.length > 0;
  find("empty").textContent = COUNT ? "Nothing is found. Esc clears the search." : "The capture holds no event.";
  if (wasWhole) fit();
  else look(view.from, view.span);
  drawMap();
}

// Paper is light, and as wide as it is; it takes the lanes from the top.
function printing(on) {
  if (view.printing === on) return;
  const theme = document.documentElement.dataset.theme;
  view.printing = on;
  if (on) printing.theme = theme;
  setTheme(on ? "light" : printing.theme);
  resized();
  draw();
}

function begin() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  head();
  legend();
  helpPart();
  overview();
  arrange();
  resized();
  setTheme(document.documentElement.dataset.theme);
  listenToLanes();
  listenToMap();
  document.addEventListener("keydown", keyed);
  find("search").addEventListener("input", searched);
  find("sort").addEventListener("change", (event) => { view.sort = event.target.value; arrange(); redraw(); });
  find("in").addEventListener("click", () => zoom(1 / 1.5, focusX()));
  find("out").addEventListener("click", () => zoom(1.5, focusX()));
  find("fit").addEventListener("click", fit);
  find("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  find("help").addEventListener("click", () => find("keys").showModal());
  new ResizeObserver(resized).observe(find("scroll"));
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  draw();
}

begin();
// For tests, and for who opens the console: what is shown, and where.
window.timeline = Object.freeze({
  painted: performance.now(),
  draw, pan, zoom, fit, select,
  state: () => ({
    from: view.from, span: view.span, whole: fitted().span, width: view.width, lanes: view.lanes.map(objectText),
    visible: rows.filter((row) => !row.hidden).map((row) => row.children[0].textContent),
    chosen: view.chosen, lane: view.lane, hits: view.hitCount, count: COUNT, theme: document.documentElement.dataset.theme,
  }),
  place: (i) => {
    const box = find("lanes").getBoundingClientRect();
    return { x: box.left + xOf(at[i]), y: box.top + view.rows.get(E.object[i]) * ROW - view.top + LINE };
  },
  event: (i) => ({ at: at[i], object: objectText(objects[E.object[i]]), outcome: OUTCOMES[outcome[i]].id }),
});
