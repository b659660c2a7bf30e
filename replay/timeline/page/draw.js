// Draw what is visible, and nothing else: the axis, the lanes' signs, the map of the whole. At most once a frame.

let wanted = false;

function redraw() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(draw);
}

function surface(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [across, down] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== across || canvas.height !== down) {
    Object.assign(canvas, { width: across, height: down });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const FONT = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

function draw() {
  wanted = false;
  const begin = performance.now();
  view.top = view.printing ? 0 : find("scroll").scrollTop;
  const first = Math.max(0, Math.floor(view.top / ROW));
  const last = Math.min(view.lanes.length, Math.ceil((view.top + view.height) / ROW));
  const marks = ticks(view.from, view.span, view.width, 96);
  drawAxis(marks);
  const context = surface(find("lanes"), view.width, view.height);
  drawGrid(context, marks.times);
  drawChosen(context);
  const shown = view.lanes.slice(first, last).map((lane) => [lane, visibleSigns(lane)]);
  const spelt = shown.reduce((sum, [, [from, to]]) => sum + to - from, 0) * LETTERS <= view.width * shown.length;
  shown.forEach(([lane, range], place) => drawLane(context, { lane, range, spelt, top: (first + place) * ROW - view.top }));
  drawLabels(first, last);
  drawWindow();
  return performance.now() - begin;
}

function drawGrid(context, times) {
  context.fillStyle = colours.grid;
  for (const time of times) context.fillRect(Math.round(xOf(time)), 0, 1, view.height);
}

// Where the chosen event stands in all lanes.
function drawChosen(context) {
  if (view.chosen < 0) return;
  context.fillStyle = colours.accent;
  const x = Math.round(xOf(at[view.chosen]));
  for (let y = 0; y < view.height; y += 6) context.fillRect(x, y, 1, 3);
}

function drawAxis({ step, times }) {
  const context = surface(find("ticks"), view.width, 37);
  context.font = FONT;
  context.textBaseline = "middle";
  let free = 0;
  let day = "";
  if (step < DAY) {
    day = partsOf(view.from).date;
    const next = times.find((time) => partsOf(time).date !== day);
    context.fillStyle = colours.soft;
    free = context.measureText(day).width + 22;
    if (next === undefined || xOf(next) > free) context.fillText(day, 8, 10);
    else free = 0;
  }
  for (const time of times) {
    const x = Math.round(xOf(time));
    context.fillStyle = colours.edge;
    context.fillRect(x, 31, 1, 6);
    const label = clock(time, step);
    const half = context.measureText(label).width / 2;
    const date = partsOf(time).date;
    context.fillStyle = colours.text;
    if (x - half >= 2 && x + half <= view.width - 2) context.fillText(label, x - half, 24);
    const left = Math.max(4, x - context.measureText(date).width / 2);
    if (step < DAY && date !== day && left >= free && x + 36 < view.width) {
      context.fillStyle = colours.soft;
      context.fillText(date, left, 10);
      free = left + 90;
    }
    day = date;
  }
}

// The first sign of a lane that can be seen, and the one after the last.
function visibleSigns(lane) {
  const signs = signsOf(lane);
  const edge = (SIGN_SIZE / view.width) * view.span;
  let from = 0;
  for (let high = signs.length; from < high;) {
    const middle = (from + high) >> 1;
    if (signs[middle].to < view.from - edge) from = middle + 1;
    else high = middle;
  }
  let to = from;
  while (to < signs.length && signs[to].from <= view.from + view.span + edge) to += 1;
  return [from, to];
}

// `spelt`: there is room for letters.
function drawLane(context, { lane, range: [from, to], spelt, top }) {
  const chosen = lane.number === view.lane;
  if (chosen) {
    context.fillStyle = colours.select;
    context.fillRect(0, top, view.width, ROW - 1);
  }
  context.fillStyle = colours.grid;
  context.fillRect(0, top + ROW - 1, view.width, 1);
  drawLives(context, lane, top + LINE);
  const signs = signsOf(lane);
  drawDeeds(context, lane, top, spelt);
  for (let n = from; n < to; n += 1) {
    const next = n + 1 < signs.length ? xOf(placeOf(signs[n + 1])) : Infinity;
    drawSign(context, signs[n], top, next);
    if (spelt && signs[n].count === 1 && A.at.length === 0) drawDecision(context, signs[n], top, next);
  }
}

function drawLives(context, lane, y) {
  context.fillStyle = colours.life;
  for (const life of lane.lives) {
    const begin = life.before ? -Infinity : xOf(life.from);
    const end = life.to === null ? Infinity : xOf(life.to);
    const left = Math.max(0, begin);
    context.fillRect(left, y - 1, Math.max(Math.min(view.width, end) - left, 0), 2);
    for (const x of [begin, end]) if (x >= 0 && x <= view.width) context.fillRect(x - 1, y - 10, 2, 20);
  }
}

function drawSign(context, sign, top, next) {
  const x = xOf(placeOf(sign));
  const y = top + LINE;
  const { id } = OUTCOMES[outcome[sign.worst]];
  context.globalAlpha = sign.weight >= 100 || view.hits === null ? 1 : 0.25;
  context.drawImage(sprite(id, sign.count > 1), x - SIGN_SIZE / 2, y - SIGN_SIZE / 2, SIGN_SIZE, SIGN_SIZE);
  if (sign.first <= view.chosen && view.chosen <= sign.last && E.object[view.chosen] === E.object[sign.first]) {
    context.strokeStyle = colours.text;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, 10, 0, 2 * Math.PI);
    context.stroke();
  }
  context.font = '700 9px system-ui, "DejaVu Sans", sans-serif';
  context.textBaseline = "middle";
  if (sign.count > 1) {
    const label = sign.count > 999 ? "1k+" : String(sign.count);
    if (next - x > 22 + label.length * 6) {
      context.fillStyle = colours.soft;
      context.fillText(label, x + 10, y - 7);
    }
  } else if (sign.retries > 0 && next - x > 32) {
    context.fillStyle = colours.retry;
    context.fillText(`↻${sign.retries}`, x + 9, y - 7);
  }
  context.globalAlpha = 1;
}

// Without action lines there are only decisions: their letters stand under their event.
function drawDecision(context, sign, top, next) {
  const taken = E.taken[sign.first];
  const x = xOf(sign.from);
  if (taken.length === 0) return;
  const room = next - x > 13 * taken.length + 2;
  if (!room) {
    context.fillStyle = colours.link;
    context.fillRect(x - 3, top + DEEDS - 1, 6, 2);
    return;
  }
  context.globalAlpha = isHit(sign.first) ? 1 : 0.25;
  taken.forEach(([kind], place) => drawLetter(context, letterOf(texts[kind]), x + 13 * place, top + DEEDS, false));
  context.globalAlpha = 1;
}

function drawLetter(context, letter, x, y, bad) {
  context.fillStyle = bad ? colours.dead : colours.ground;
  context.strokeStyle = bad ? colours.dead : colours.link;
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(x - 5.5, y - 5.5, 11, 11, 2.5);
  context.fill();
  context.stroke();
  context.fillStyle = bad ? colours.on : colours.text;
  context.font = '700 8px system-ui, "DejaVu Sans", sans-serif';
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(letter, x, y + 0.5);
  context.textAlign = "start";
}

const isBad = (a) => A.status[a] >= 400 || texts[A.kind[a]] === "dead";

// What a consumer did: from its event a line down to each deed; its slope is the latency.
function drawDeeds(context, lane, top, spelt) {
  if (lane.actions.length === 0) return;
  const edge = (SIGN_SIZE / view.width) * view.span;
  let free = -Infinity;
  context.lineWidth = 1;
  for (const a of lane.actions) {
    const begin = A.at[a];
    if (begin + A.us[a] < view.from - edge) continue;
    if (begin > view.from + view.span + edge) break;
    const x = xOf(begin);
    const bad = isBad(a);
    const room = x - 6 >= free && (spelt || bad);
    if (x < free && !bad) continue; // it would be drawn over what is there
    const event = A.event[a];
    context.globalAlpha = event < 0 || isHit(event) ? 1 : 0.25;
    if (event >= 0 && room) {
      context.strokeStyle = event === view.chosen ? colours.accent : colours.link;
      context.beginPath();
      context.moveTo(xOf(at[event]), top + LINE + 5);
      context.lineTo(x, top + DEEDS - 5);
      context.stroke();
    }
    const long = xOf(begin + A.us[a]) - x;
    context.fillStyle = bad ? colours.dead : colours.link;
    if (long > 6) context.fillRect(x, top + DEEDS - 2, long, 4);
    if (room) drawLetter(context, letterOf(texts[A.kind[a]]), x, top + DEEDS, bad);
    else context.fillRect(x - 1, top + DEEDS - 3, 2, 6);
    free = Math.max(free, x + (room ? 8 : 2));
    context.globalAlpha = 1;
  }
}

const rows = [];

// The lanes' names are elements, as many as fit: texts can be read by a screen reader, and cannot leave their place.
function drawLabels(first, last) {
  while (rows.length < last - first) {
    const row = make("div", "lane", make("span", "name"), make("span", "trouble"), make("span", "space"));
    find("labels").append(row);
    rows.push(row);
  }
  rows.forEach((row, place) => {
    const lane = view.lanes[first + place];
    row.hidden = first + place >= last;
    if (row.hidden) return;
    row.style.transform = `translateY(${(first + place) * ROW - view.top}px)`;
    row.classList.toggle("chosen", lane.number === view.lane);
    if (row.dataset.lane === String(lane.number)) return;
    row.dataset.lane = lane.number;
    const [name, trouble, space] = row.children;
    name.textContent = lane.name;
    trouble.textContent = lane.dead ? `✕ ${lane.dead}` : "";
    space.textContent = lane.kind === "isvc" ? lane.space : `${lane.space} · ${lane.kind}`;
    row.title = `${lane.kind}/${objectText(lane)}\n${many(lane.events.length, "event")}, ${many(lane.dead, "dead letter")}`;
  });
}

function drawMap() {
  const height = find("map").clientHeight;
  const context = surface(find("mapped"), view.width, height);
  const whole = fitted();
  const bins = Math.max(1, Math.floor(view.width / 4));
  const counts = new Uint32Array(bins);
  const dead = new Uint8Array(bins);
  for (let i = 0; i < COUNT; i += 1) {
    if (!isHit(i)) continue;
    const bin = Math.min(bins - 1, Math.floor(((at[i] - whole.from) / whole.span) * bins));
    counts[bin] += 1;
    if (outcome[i] === OUTCOME.dead) dead[bin] = 1;
  }
  const most = Math.max(1, ...counts);
  const wide = view.width / bins;
  let free = 0;
  for (let bin = 0; bin < bins; bin += 1) {
    if (!counts[bin]) continue;
    const tall = Math.max(2, Math.sqrt(counts[bin] / most) * (height - 16));
    context.fillStyle = colours.noop;
    context.fillRect(bin * wide, height - 3 - tall, Math.max(1, wide - 1), tall);
    if (dead[bin] && bin * wide >= free) {
      free = bin * wide + 9;
      context.strokeStyle = colours.dead;
      context.lineWidth = 2;
      context.beginPath();
      for (const side of [-1, 1]) {
        context.moveTo((bin + 0.5) * wide - 3 * side, 3);
        context.lineTo((bin + 0.5) * wide + 3 * side, 9);
      }
      context.stroke();
    }
  }
}

function drawWindow() {
  const whole = fitted();
  const style = find("window").style;
  style.left = `${((view.from - whole.from) / whole.span) * view.width}px`;
  style.width = `${(view.span / whole.span) * view.width}px`;
  style.visibility = view.span >= whole.span ? "hidden" : "visible";
}
