// Hands on the page: keys, mouse, wheel, search; and what they do to the selection.

function select(i, quiet = false) {
  view.chosen = i;
  if (i < 0) {
    overview();
    find("live").textContent = "Overview";
  } else {
    view.lane = E.object[i];
    detail(i);
    if (!quiet) reveal(i);
    find("live").textContent = sentence(i);
  }
  redraw();
}

// The next event, in time, that `wants` takes; `list` is in the order of time.
function seek(list, way, wants) {
  const start = view.chosen >= 0 ? list.indexOf(view.chosen) : -1;
  let place = start;
  if (start < 0) {
    const seen = way > 0 ? view.from : view.from + view.span;
    const time = view.chosen >= 0 ? at[view.chosen] : seen;
    place = lowerBound(list, time) - (way > 0 ? 1 : 0);
  }
  for (let n = place + way; n >= 0 && n < list.length; n += way) if (wants(list[n])) return list[n];
  return -1;
}

function step(way, inLane) {
  const lane = objects[view.lane];
  const list = inLane && lane ? lane.events : everything;
  const found = seek(list, way, isHit);
  if (found >= 0) select(found);
  else find("live").textContent = way > 0 ? "No later event" : "No earlier event";
}

// To the next event of an outcome; after the last one the first follows.
function jump(way, id) {
  const wants = (i) => isHit(i) && (id === "again" ? E.retries[i] > 0 : outcome[i] === OUTCOME[id]);
  const list = way > 0 ? everything : everything.slice().reverse();
  let found = view.chosen < 0 ? list.find(wants) : seek(everything, way, wants);
  if (found === undefined || found < 0) found = list.find(wants);
  if (found === undefined) find("live").textContent = "None";
  else select(found);
}

function closer(i) {
  look(at[i] - view.span / 8, view.span / 4);
}

function moveLane(way) {
  if (view.lanes.length === 0) return;
  const row = view.rows.get(view.lane);
  const next = row === undefined ? Math.floor(view.top / ROW) : Math.min(Math.max(row + way, 0), view.lanes.length - 1);
  chooseLane(view.lanes[next]);
}

function chooseLane(lane) {
  view.lane = lane.number;
  if (view.chosen >= 0 && E.object[view.chosen] !== lane.number) {
    view.chosen = -1;
    overview();
  }
  revealLane(lane.number);
  find("live").textContent = `${objectText(lane)}: ${many(lane.events.length, "event")}, ${many(lane.dead, "dead letter")}`;
}

function searched() {
  view.hits = search(find("search").value);
  view.hitCount = view.hits === null ? COUNT : view.hits.reduce((sum, hit) => sum + hit, 0);
  arrange();
  resized();
  find("found").textContent = view.hits === null ? ""
    : `${many(view.hitCount, "event")}, ${many(view.lanes.length, "object")}`;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  find("theme").textContent = theme === "dark" ? "Light" : "Dark";
  readColours();
  drawMap();
  redraw();
}

const isDark = () => document.documentElement.dataset.theme === "dark";

const KEYS = new Map([
  ["ArrowLeft", () => pan(-view.width / 8)], ["ArrowRight", () => pan(view.width / 8)],
  ["ArrowUp", () => moveLane(-1)], ["ArrowDown", () => moveLane(1)],
  ["Home", () => look(-Infinity, view.span)], ["End", () => look(Infinity, view.span)],
  ["+", () => zoom(1 / 1.5, focusX())], ["=", () => zoom(1 / 1.5, focusX())],
  ["-", () => zoom(1.5, focusX())], ["−", () => zoom(1.5, focusX())],
  ["f", fit], ["0", fit], ["n", () => step(1, true)], ["p", () => step(-1, true)],
  ["N", () => step(1, false)], ["P", () => step(-1, false)],
  ["d", () => jump(1, "dead")], ["D", () => jump(-1, "dead")],
  ["/", () => find("search").focus()], ["t", () => setTheme(isDark() ? "light" : "dark")],
  ["?", () => find("keys").showModal()], ["Escape", escaped], ["Enter", () => view.chosen >= 0 && closer(view.chosen)],
]);

// Zooming by key keeps the selected event where it is.
function focusX() {
  const x = view.chosen >= 0 ? xOf(at[view.chosen]) : view.width / 2;
  return x >= 0 && x <= view.width ? x : view.width / 2;
}

function escaped() {
  if (view.chosen >= 0) select(-1);
  else if (view.hits !== null) {
    find("search").value = "";
    searched();
  } else {
    view.lane = -1;
    redraw();
  }
}

function keyed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || find("keys").open) return;
  const typed = event.target.closest("input, select");
  if (typed) {
    if (event.key === "Escape") {
      typed.value = typed.id === "search" ? "" : typed.value;
      if (typed.id === "search") searched();
      find("scroll").focus();
    } else if (event.key === "Enter" && typed.id === "search") step(1, false);
    return;
  }
  if (event.key === "Enter" && event.target.closest("button")) return;
  const action = KEYS.get(event.key);
  if (action === undefined) return;
  event.preventDefault();
  action();
}

// The event under a point of the lanes, -1 for none.
function eventAt(x, y) {
  const lane = view.lanes[Math.floor((y + view.top) / ROW)];
  if (lane === undefined) return -1;
  let found = -1;
  let least = 11;
  for (const sign of signsOf(lane)) {
    const far = Math.abs(xOf(placeOf(sign)) - x);
    if (far < least) [found, least] = [sign.count > 1 && within(sign) ? view.chosen : sign.worst, far];
  }
  return found;
}

const within = (sign) => sign.first <= view.chosen && view.chosen <= sign.last
  && E.object[view.chosen] === E.object[sign.first];

function tip(i, x, y) {
  const element = find("tip");
  element.hidden = i < 0;
  if (i < 0) return;
  const sign = signsOf(objects[E.object[i]]).find((each) => each.from <= at[i] && at[i] <= each.to);
  const reason = texts[E.reason[i]] || E.taken[i].map(([kind]) => wordOf(texts[kind])).join(", ");
  element.replaceChildren(
    make("b", "", `${OUTCOMES[outcome[i]].word}: ${texts[E.type[i]]}`), make("span", "", moment(at[i])),
    reason ? make("span", "", shorter(reason, 200)) : "",
    E.latency[i] === null ? "" : make("span", "", `latency ${duration(E.latency[i])}`),
    sign && sign.count > 1 ? make("span", "", `${sign.count} events here: zoom in, or n and p`) : "",
  );
  const box = element.getBoundingClientRect();
  element.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  element.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18}px`;
}

const shorter = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function listenToLanes() {
  const canvas = find("lanes");
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, from: view.from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    Object.assign(find("hair"), { hidden: false });
    find("hair").style.left = `${canvas.offsetLeft + x}px`;
    if (drag && (drag.moved || Math.abs(event.clientX - drag.x) > 3)) {
      drag.moved = true;
      canvas.classList.add("drags");
      tip(-1);
      look(drag.from - ((event.clientX - drag.x) / view.width) * view.span, view.span);
    } else if (!drag) {
      const i = eventAt(x, event.clientY - box.top);
      canvas.style.cursor = i < 0 ? "" : "pointer";
      tip(i, event.clientX, event.clientY);
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const box = canvas.getBoundingClientRect();
    canvas.classList.remove("drags");
    if (drag && !drag.moved) {
      const i = eventAt(event.clientX - box.left, event.clientY - box.top);
      const lane = view.lanes[Math.floor((event.clientY - box.top + view.top) / ROW)];
      if (i >= 0) select(i, true);
      else if (lane) chooseLane(lane);
    }
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { tip(-1); find("hair").hidden = true; });
  canvas.addEventListener("dblclick", (event) => zoom(1 / 3, event.clientX - canvas.getBoundingClientRect().left));
  find("scroll").addEventListener("scroll", () => { tip(-1); redraw(); });
  find("scroll").addEventListener("wheel", (event) => {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 150), event.clientX - canvas.getBoundingClientRect().left);
    } else if (Math.abs(sideways) > 0 && (event.shiftKey || Math.abs(sideways) > Math.abs(event.deltaY))) {
      event.preventDefault();
      pan(sideways);
    }
  }, { passive: false });
  find("labels").addEventListener("click", (event) => {
    const row = event.target.closest(".lane");
    if (row) chooseLane(objects[Number(row.dataset.lane)]);
  });
}

function listenToMap() {
  const map = find("map");
  const go = (event) => {
    const whole = fitted();
    const time = whole.from + ((event.clientX - map.getBoundingClientRect().left) / view.width) * whole.span;
    look(time - view.span / 2, view.span);
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); go(event); });
  map.addEventListener("pointermove", (event) => { if (map.hasPointerCapture(event.pointerId)) go(event); });
}
