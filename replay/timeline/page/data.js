// The capture, as the page holds it: typed columns, one list of events for each lane, and what is searched.
// Every text is somebody else's: it reaches the page as a text node or a drawn text, never as markup.

const page = JSON.parse(document.getElementById("data").textContent);
const texts = page.texts;
const E = page.events;
const A = page.actions;
const START = page.start; // Unix time in microseconds; all other times are differences to it
const FLAG = { initial: 1, synthetic: 2, truncated: 4, terminating: 8, look: 16 };

// What came of an event, the gravest last: it is what a place with many events shows.
const OUTCOMES = [
  { id: "other", word: "Other", plural: "other" },
  { id: "noop", word: "No change", plural: "no change" },
  { id: "applied", word: "Applied", plural: "applied" },
  { id: "stale", word: "Stale, dropped", plural: "stale, dropped" },
  { id: "duplicate", word: "Duplicate, dropped", plural: "duplicates, dropped", single: "duplicate, dropped" },
  { id: "retry", word: "Will be tried again", plural: "to be tried again" },
  { id: "dead", word: "Dead letter", plural: "dead letters", single: "dead letter" },
];
const OUTCOME = Object.fromEntries(OUTCOMES.map((each, number) => [each.id, number]));
// A letter for each thing that is decided or done; a Map, for a kind named `constructor` is only a text.
const KINDS = new Map([
  ["CreateRecord", ["C", "create record"]], ["UpdateRecord", ["U", "update record"]],
  ["PatchObject", ["P", "patch object"]], ["DeferPatch", ["D", "defer patch"]], ["Warn", ["W", "warn"]],
  ["Reject", ["X", "reject"]], ["ack", ["A", "acknowledge"]], ["retry", ["R", "try again"]], ["dead", ["X", "dead letter"]],
]);
const letterOf = (kind) => KINDS.get(kind)?.[0] ?? "•";
const wordOf = (kind) => KINDS.get(kind)?.[1] ?? kind;

const COUNT = E.at.length;
const everything = Array.from({ length: COUNT }, (_, i) => i);
const at = new Float64Array(COUNT);
const outcome = new Uint8Array(COUNT);
const objects = page.objects.map(([kind, space, name], number) => ({
  number, kind: texts[kind], space: texts[space], name: texts[name], events: [], actions: [], dead: 0, trouble: 0,
}));
const totals = new Uint32Array(OUTCOMES.length);
let retries = 0;
for (let i = 0, now = 0; i < COUNT; i += 1) {
  now += E.at[i];
  at[i] = now;
  outcome[i] = OUTCOME[texts[E.result[i]]] ?? 0;
  totals[outcome[i]] += 1;
  retries += E.retries[i];
  const lane = objects[E.object[i]];
  lane.events.push(i);
  lane.dead += outcome[i] === OUTCOME.dead;
  lane.trouble += outcome[i] === OUTCOME.dead ? 1000 : (outcome[i] === OUTCOME.retry) + E.retries[i];
}
const actionsOf = new Map();
for (let i = 0; i < A.at.length; i += 1) {
  objects[A.object[i]].actions.push(i);
  if (A.event[i] >= 0) {
    if (!actionsOf.has(A.event[i])) actionsOf.set(A.event[i], []);
    actionsOf.get(A.event[i]).push(i);
  }
}
let END = COUNT ? at[COUNT - 1] : 0;
for (let i = 0; i < A.at.length; i += 1) END = Math.max(END, A.at[i] + A.us[i]);

const latencies = Float64Array.from(E.latency.filter((each) => each !== null)).sort();
const percentile = (share) => latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))];

// A life: from the first to the last event of one uid; `before`: it was there when the capture began.
for (const lane of objects) {
  const lives = new Map();
  for (const i of lane.events) {
    const life = lives.get(E.uid[i]) ?? { from: at[i], to: null, before: (E.flags[i] & FLAG.initial) !== 0 };
    if (texts[E.type[i]] === "deleted") life.to = at[i];
    lives.set(E.uid[i], life);
  }
  lane.lives = [...lives.values()];
}

// The first place in a lane's events at or after a time.
function lowerBound(list, time) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at[list[middle]] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

const objectText = (lane) => `${lane.space}/${lane.name}`;

// What stands under each event for a search: each text is looked at once for each word, not once for each event.
function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return null;
  const hits = new Uint8Array(COUNT).fill(1);
  for (const word of words) {
    const [, field, rest] = /^(name|ns|model|version|reason|result|type|uid):(.+)$/.exec(word) ?? [null, "", word];
    const holds = Uint8Array.from(texts, (text) => text.toLowerCase().includes(rest));
    const is = Uint8Array.from(texts, (text) => text.toLowerCase() === rest);
    const named = objects.map((lane, number) => {
      const [, space, name] = page.objects[number];
      if (field === "name") return holds[name];
      if (field === "ns") return holds[space];
      return field === "" && (holds[name] || holds[space] || objectText(lane).toLowerCase().includes(rest));
    });
    for (let i = 0; i < COUNT; i += 1) {
      if (hits[i] && !(named[E.object[i]] || matches(i, field, holds, is))) hits[i] = 0;
    }
  }
  return hits;
}

function matches(i, field, holds, is) {
  const reasons = () => holds[E.reason[i]] || E.taken[i].some((taken) => holds[taken[1]])
    || E.notices[i].some((notice) => holds[notice]) || (actionsOf.get(i) ?? []).some((each) => holds[A.reason[each]]);
  switch (field) {
    case "": return is[E.model[i]] || reasons();
    case "model": return is[E.model[i]];
    case "version": return is[E.version[i]];
    case "reason": return reasons();
    case "result": return is[E.result[i]];
    case "type": return is[E.type[i]];
    case "uid": return holds[E.uid[i]];
    default: return false;
  }
}
