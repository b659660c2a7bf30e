// The panel at the side: an overview of the capture, or everything about one event.

const LIST_MAX = 20;
const SLOW_MAX = 5;

const facts = (...pairs) => make("dl", "", ...pairs
  .filter(([, value]) => value !== "" && value !== null && value !== undefined)
  .flatMap(([name, value]) => [make("dt", "", name), make("dd", "", String(value))]));

function button(text, action, title = "") {
  const found = make("button", "", text);
  found.type = "button";
  found.title = title;
  found.addEventListener("click", action);
  return found;
}

function eventButton(i, note) {
  const go = button("", () => select(i));
  go.append(make("b", "", objectText(objects[E.object[i]])), make("span", "", note));
  return make("li", "go", go);
}

function overview() {
  const about = page.about;
  const dead = everything.filter((i) => outcome[i] === OUTCOME.dead);
  find("panel").replaceChildren(
    make("h2", "", "Overview"),
    facts(
      ["From", COUNT ? moment(0) : ""], ["To", COUNT ? moment(END) : ""], ["Length", duration(END)],
      ["Objects", objects.length.toLocaleString("en")], ["Events", COUNT.toLocaleString("en")],
      ["Redelivered", retries ? many(retries, "time") : ""], ["Only", about.only],
    ),
    make("h3", "", "Latency"), ...latencyPart(),
    ...(dead.length === 0 ? [] : [
      make("h3", "", `Dead letters (${dead.length.toLocaleString("en")})`),
      make("ol", "", ...dead.slice(0, LIST_MAX).map((i) => eventButton(i, `${clock(at[i])} · ${texts[E.reason[i]]}`))),
      dead.length > LIST_MAX ? make("p", "note", `and ${many(dead.length - LIST_MAX, "more", "more")}: press d to go on`) : "",
    ]),
    ...slowPart(),
    make("h3", "", "Capture"),
    facts(
      ["Cluster", about.cluster], ["Cluster id", about.clusterId], ["Source", about.source], ["Stream", about.stream],
      ["Recorded", about.created], ["Tool", about.tool], ["Redaction", about.redaction],
    ),
  );
}

// From an event to the end of the last thing done about it, in classes of powers of ten.
function latencyPart() {
  if (latencies.length === 0) {
    return [make("p", "note", "Not told: the capture has no lines of what a consumer did. The decisions are those that "
      + "this release takes, shown at the time of their event.")];
  }
  const bounds = [10 * MS, 100 * MS, SECOND, 10 * SECOND, MINUTE, Infinity];
  const counts = bounds.map((bound, n) => latencies.filter((each) => each < bound && each >= (bounds[n - 1] ?? 0)).length);
  const most = Math.max(...counts);
  const bars = make("div", "bars", ...bounds.flatMap((bound, n) => {
    const bar = make("i", "");
    bar.style.width = `${(counts[n] / most) * 100}%`;
    bar.style.visibility = counts[n] ? "visible" : "hidden";
    const name = bound === Infinity ? "longer" : `< ${duration(bound)}`;
    return [make("span", "", name), bar, make("span", "", counts[n].toLocaleString("en"))];
  }));
  return [
    make("p", "", `Half within ${duration(percentile(0.5))}, 99 % within ${duration(percentile(0.99))}, `
      + `the slowest ${duration(latencies.at(-1))}.`),
    bars,
  ];
}

function slowPart() {
  const slow = everything.filter((i) => E.latency[i] !== null).sort((a, b) => E.latency[b] - E.latency[a]);
  return slow.length === 0 ? [] : [make("h3", "", "Slowest"), make("ol", "",
    ...slow.slice(0, SLOW_MAX).map((i) => eventButton(i, `${duration(E.latency[i])} · ${clock(at[i])}`)))];
}

const FLAGS = [["initial", "was there at the start"], ["synthetic", "found by comparison"], ["truncated", "shortened"],
  ["terminating", "being deleted"], ["look", "a look of the consumer's own"]];

function detail(i) {
  const lane = objects[E.object[i]];
  const sign = OUTCOMES[outcome[i]];
  const word = outcome[i] === OUTCOME.other ? texts[E.result[i]] || sign.word : sign.word;
  const place = lane.events.indexOf(i);
  const before = place > 0 ? duration(at[i] - at[lane.events[place - 1]]) : "";
  const reason = texts[E.reason[i]];
  const title = make("h2", "", signIcon(sign.id), make("span", "", word));
  title.id = "panel-title";
  find("panel").replaceChildren(
    title,
    make("p", "where", objectText(lane)),
    make("p", "note", make("span", "chip", texts[E.type[i]]), " ",
      ...FLAGS.filter(([name]) => E.flags[i] & FLAG[name]).flatMap(([, text]) => [make("span", "chip", text), " "])),
    reason ? make("p", `why ${sign.id}`, reason) : "",
    make("div", "moves",
      button("← Before", () => step(-1, true), "Event before of this object (p)"),
      button("Next →", () => step(1, true), "Next event of this object (n)"),
      button("Closer", () => closer(i), "Zoom in to this event (Enter)"),
      button("Overview", () => select(-1), "Close (Esc)")),
    facts(
      ["Time", moment(at[i])], ["Since the last", before],
      ["Latency", E.latency[i] === null ? "" : duration(E.latency[i])],
      ["Stored after", E.stored[i] === null ? "" : duration(E.stored[i])],
      ["Redelivered", E.retries[i] ? many(E.retries[i], "time") : ""],
      ["Model", texts[E.model[i]] || "none"], ["Version", texts[E.version[i]]], ["Registry", texts[E.registry[i]]],
      ["Kind", lane.kind], ["Uid", texts[E.uid[i]]], ["resourceVersion", texts[E.resourceVersion[i]]],
      ["Sequence", E.seq[i] || ""], ["Event of object", `${place + 1} of ${lane.events.length}`],
    ),
    ...decisionPart(i), ...deedPart(i),
    ...(E.notices[i].length ? [make("h3", "", "Told to its owner"),
      make("ol", "", ...E.notices[i].map((notice) => make("li", "", texts[notice])))] : []),
    ...(E.state[i] ? [make("h3", "", "Labels and state"), make("p", "code", texts[E.state[i]])] : []),
  );
  find("panel").scrollTop = 0;
}

function decisionPart(i) {
  const taken = E.taken[i];
  if (taken.length === 0) return [make("h3", "", "Decision"), make("p", "note", "Nothing to do.")];
  return [make("h3", "", "Decision"), make("ol", "", ...taken.map(([kind, reason, record, registry, fields]) => make("li", "",
    make("b", "", wordOf(texts[kind])), record ? make("span", "chip", `record ${texts[record]}`) : "",
    registry && registry !== E.registry[i] ? make("span", "chip", `in ${texts[registry]}`) : "",
    make("div", "", texts[reason]), fields ? make("div", "code", texts[fields]) : "")))];
}

function deedPart(i) {
  const deeds = actionsOf.get(i);
  if (deeds === undefined) return [];
  return [make("h3", "", "What the consumer did"), make("ol", "", ...deeds.map((a) => make("li", "",
    make("b", "", wordOf(texts[A.kind[a]])),
    make("span", "chip", `after ${duration(A.at[a] - at[i])}${A.us[a] ? `, took ${duration(A.us[a])}` : ""}`),
    A.status[a] ? make("span", "chip", `HTTP ${A.status[a]}`) : "",
    make("div", "", texts[A.reason[a]]), A.member[a] ? make("div", "note", texts[A.member[a]]) : "")))];
}

// One sentence for those who hear the page.
function sentence(i) {
  const lane = objects[E.object[i]];
  const { word } = OUTCOMES[outcome[i]];
  const reason = texts[E.reason[i]] || E.taken[i].map(([kind, why]) => `${wordOf(texts[kind])}: ${texts[why]}`).join("; ");
  return `${word}: ${texts[E.type[i]]}, ${objectText(lane)}, ${clock(at[i])}. ${reason}`;
}

function legend() {
  find("legend").replaceChildren(...OUTCOMES.slice().reverse().filter(({ id }) => id !== "other" || totals[0]).map((sign) => {
    const number = totals[OUTCOME[sign.id]];
    const name = number === 1 ? sign.single ?? sign.plural : sign.plural;
    const go = button("", () => jump(1, sign.id), `Next: ${sign.word.toLowerCase()}`);
    go.append(signIcon(sign.id), make("b", "", number.toLocaleString("en")), make("span", "", name));
    go.disabled = number === 0;
    go.classList.toggle("alarm", sign.id === "dead" && number > 0);
    return go;
  }));
  if (retries) {
    const again = button("", () => jump(1, "again"), "Next: redelivered");
    again.append(make("span", "", "↻"), make("b", "", retries.toLocaleString("en")), make("span", "", "redelivered"));
    find("legend").append(again);
  }
}

function head() {
  const { about } = page;
  find("about").textContent = [about.cluster || about.clusterId, COUNT ? `${moment(0)}, ${duration(END)}` : "no events",
    `${many(COUNT, "event")} of ${many(objects.length, "object")}`].filter(Boolean).join(" · ");
  find("about").title = find("about").textContent;
  document.title = `${about.cluster || "isvc-sync"}: timeline`;
  find("cut").hidden = about.cut === "";
  find("cut").textContent = about.cut && `⚠ The capture is not whole: ${about.cut}. What came after is not shown.`;
}

const HELP = [
  ["Move", [[["←", "→"], "earlier, later"], [["+", "−"], "zoom in, out"], [["f"], "fit: show everything"],
    [["Home", "End"], "to the start, the end"], [["↑", "↓"], "lane above, below"]]],
  ["Find", [[["n", "p"], "next, previous event of the lane"], [["N", "P"], "of all lanes; of what is found"],
    [["d", "D"], "next, previous dead letter"], [["/"], "search"], [["Enter"], "closer to the event; in the search: next"]]],
  ["Page", [[["Esc"], "close, clear the search"], [["t"], "light or dark"], [["?"], "this list"]]],
  ["Search for", [[["words"], "all must be found, in any case of letters"], [["model:7"], "also version:, uid:"],
    [["ns:team-a"], "also name:"], [["reason:label"], "also result:stale, type:deleted"]]],
];
const MOUSE = "Drag, or Shift and the wheel, moves in time; Ctrl and the wheel zooms; a double click zooms in.";

function helpPart() {
  const keys = HELP.map(([title, lines]) => make("div", "", make("h3", "", title), make("dl", "", ...lines.flatMap(
    ([names, text]) => [make("dt", "", ...names.flatMap((name) => [make("kbd", "", name), " "])), make("dd", "", text)]))));
  const signs = make("div", "", make("h3", "", "Signs"), make("dl", "", ...OUTCOMES.slice(1).reverse().flatMap(
    ({ id, word }) => [make("dt", "", signIcon(id)), make("dd", "", word)])));
  const letters = make("div", "", make("h3", "", "Letters: what was decided or done"), make("dl", "",
    ...[...KINDS].filter(([kind]) => kind !== "dead").flatMap(([, [letter, word]]) => [make("dt", "", make("kbd", "", letter)), make("dd", "", word)])));
  const mouse = make("div", "", make("h3", "", "Mouse"), make("p", "", MOUSE),
    make("h3", "", "Lanes"), make("p", "", "The line is the life of one uid; a bar across it is its creation or its end. "
      + "A shadow and a number: so many events are too near to be told apart; the gravest is shown."));
  find("keys-body").replaceChildren(...keys, signs, letters, mouse);
}
