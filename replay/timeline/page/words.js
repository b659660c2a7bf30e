// Times, durations and the axis' steps, in microseconds; everything is shown in UTC, as the capture has it.

const MS = 1e3;
const SECOND = 1e6;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((each) => each * MS),
  ...[1, 2, 5, 10, 15, 30].map((each) => each * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((each) => each * MINUTE),
  ...[1, 2, 3, 6, 12].map((each) => each * HOUR),
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 20000, 100000, 500000].map((each) => each * DAY),
];

const two = (number, digits = 2) => String(number).padStart(digits, "0");

function partsOf(us) {
  const date = new Date(Math.floor((START + us) / MS));
  return {
    date: `${two(date.getUTCFullYear(), 4)}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`,
    minute: `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`,
    second: two(date.getUTCSeconds()),
    ms: two(date.getUTCMilliseconds(), 3),
  };
}

function clock(us, step = MS) {
  const parts = partsOf(us);
  if (step >= DAY) return parts.date;
  if (step >= MINUTE) return parts.minute;
  return `${parts.minute}:${parts.second}${step < SECOND ? `.${parts.ms}` : ""}`;
}

const moment = (us) => `${partsOf(us).date} ${clock(us)} UTC`;

function duration(us) {
  const size = Math.abs(us);
  const sign = us < 0 ? "−" : "";
  if (size < MS) return `${sign}${Math.round(size)} µs`;
  if (size < SECOND) return `${sign}${+(size / MS).toPrecision(3)} ms`;
  if (size < MINUTE) return `${sign}${+(size / SECOND).toPrecision(3)} s`;
  for (const [unit, name, smaller, small] of [[DAY, "d", HOUR, "h"], [HOUR, "h", MINUTE, "min"], [MINUTE, "min", SECOND, "s"]]) {
    if (size < unit) continue;
    const rest = Math.floor((size % unit) / smaller);
    return `${sign}${Math.floor(size / unit).toLocaleString("en")} ${name}${rest ? ` ${rest} ${small}` : ""}`;
  }
  return "";
}

const many = (number, one, more = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : more}`;

// The times to write at an axis where one label needs `room` pixels.
function ticks(from, span, width, room) {
  const step = STEPS.find((each) => (each / span) * width >= room) ?? STEPS.at(-1);
  const first = Math.ceil((START + from) / step) * step - START;
  const found = [];
  for (let time = first; time <= from + span && found.length < 200; time += step) found.push(time);
  return { step, times: found };
}

// An element with a class, texts and other elements in it. There is no other way to put something on the page.
function make(tag, kind, ...inside) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...inside.filter((each) => each !== null && each !== undefined && each !== ""));
  return element;
}

const find = (id) => document.getElementById(id);
