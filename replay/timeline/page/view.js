// What is shown: a stretch of time, an order of lanes, a place in them, what is searched and what is selected.

const ROW = 38; // pixels of a lane
const LINE = 14; // of its line of events, below its top
const DEEDS = 30; // of its line of actions
const MERGE = 13; // events nearer than this are one sign
const LETTERS = 45; // pixels that a sign has for itself, on the average, where letters are written
const MARGIN = 18; // pixels around everything, so that the first and last sign are whole

const view = {
  from: 0, span: SECOND, width: 0, height: 0, top: 0,
  lanes: objects.slice(), rows: new Map(), hits: null, hitCount: COUNT, sort: "name", chosen: -1, lane: -1, printing: false,
};
const SPAN_MIN = MS;

const order = (left, right) => (left < right ? -1 : left > right ? 1 : 0);
const byName = (a, b) => order(a.space, b.space) || order(a.name, b.name) || order(a.kind, b.kind);
const firstOf = (lane) => (lane.events.length ? at[lane.events[0]] : Infinity);
const SORTS = {
  name: byName,
  first: (a, b) => firstOf(a) - firstOf(b) || byName(a, b),
  trouble: (a, b) => b.trouble - a.trouble || byName(a, b),
  events: (a, b) => b.events.length - a.events.length || byName(a, b),
};

const xOf = (time) => ((time - view.from) / view.span) * view.width;
const timeOf = (x) => view.from + (x / view.width) * view.span;

function arrange() {
  const shown = view.hits === null ? objects.slice() : objects.filter((lane) => lane.events.some((i) => view.hits[i]));
  view.lanes = shown.sort(SORTS[view.sort]);
  view.rows = new Map(view.lanes.map((lane, row) => [lane.number, row]));
}

function fitted() {
  const whole = Math.max(END, SPAN_MIN * 10);
  const share = MARGIN / Math.max(view.width - 2 * MARGIN, 1);
  return { from: (END - whole) / 2 - whole * share, span: whole * (1 + 2 * share) };
}

function look(from, span) {
  const whole = fitted();
  view.span = Math.min(Math.max(span, SPAN_MIN), whole.span);
  view.from = Math.min(Math.max(from, whole.from), whole.from + whole.span - view.span);
  redraw();
}

const fit = () => look(fitted().from, fitted().span);
const pan = (pixels) => look(view.from + (pixels / view.width) * view.span, view.span);

function zoom(factor, x = view.width / 2) {
  const time = timeOf(x);
  const span = Math.min(Math.max(view.span * factor, SPAN_MIN), fitted().span);
  look(time - (x / view.width) * span, span);
}

// Bring an event into sight, without moving when it is there already.
function reveal(i) {
  const x = xOf(at[i]);
  const whole = view.span >= fitted().span;
  if (!whole && (x < view.width * 0.08 || x > view.width * 0.92)) look(at[i] - view.span / 2, view.span);
  revealLane(E.object[i]);
}

function revealLane(number) {
  const row = view.rows.get(number);
  if (row === undefined) return;
  const scroll = find("scroll");
  const top = row * ROW;
  if (top < scroll.scrollTop + ROW) scroll.scrollTop = top - ROW;
  else if (top + 2 * ROW > scroll.scrollTop + view.height) scroll.scrollTop = top + 2 * ROW - view.height;
  redraw();
}

// The signs of a lane at this scale: events too near to be told apart are one. Counted from the lane's first event, so
// that they stay together while the page moves; made anew only when the scale changes.
function signsOf(lane) {
  const scale = view.span / view.width;
  if (lane.signs && lane.scale === scale && lane.hits === view.hits) return lane.signs;
  const near = MERGE * scale;
  const signs = [];
  let last = null;
  for (const i of lane.events) {
    const hit = view.hits === null || view.hits[i] === 1;
    const weight = outcome[i] + (hit ? 100 : 0);
    if (last && at[i] - last.from < near) {
      last.to = at[i];
      last.count += 1;
      last.retries += E.retries[i];
      last.last = i;
      if (weight > last.weight) Object.assign(last, { weight, worst: i });
    } else {
      last = { from: at[i], to: at[i], count: 1, worst: i, first: i, last: i, weight, retries: E.retries[i] };
      signs.push(last);
    }
  }
  Object.assign(lane, { signs, scale, hits: view.hits });
  return signs;
}

const placeOf = (sign) => (sign.count === 1 ? sign.from : (sign.from + sign.to) / 2);
const isHit = (i) => view.hits === null || view.hits[i] === 1;
