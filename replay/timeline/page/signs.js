// The signs: one path for each, drawn on the canvas and, as SVG, everywhere else. Each differs from the others in shape.

const SIGNS = {
  other: { lines: "M-3 0H3" },
  noop: { lines: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0" },
  applied: { fill: "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0" },
  stale: { lines: "M0 -6L6 0L0 6L-6 0z" },
  duplicate: { lines: "M-6 -6h8v8h-8zM-2 2v4h8v-8h-4" },
  retry: { lines: "M4.4 -3A5.3 5.3 0 1 0 5.3 1.2", fill: "M6.8 -6.8v6h-6z" },
  dead: { fill: "M-2.9 -7h5.8l4.1 4.1v5.8l-4.1 4.1h-5.8l-4.1 -4.1v-5.8z", cross: "M-2.8 -2.8L2.8 2.8M2.8 -2.8L-2.8 2.8" },
};
const SIGN_SIZE = 22;

let colours = {};
let sprites = new Map();

function readColours() {
  const style = getComputedStyle(document.documentElement);
  colours = new Proxy({}, { get: (_, name) => style.getPropertyValue(`--${String(name)}`).trim() });
  colours = Object.fromEntries(
    ["ground", "raised", "sunken", "edge", "grid", "text", "soft", "accent", "select", "life", "link", "on",
      "noop", "applied", "stale", "duplicate", "retry", "dead"].map((name) => [name, colours[name]]),
  );
  colours.other = colours.noop;
  sprites = new Map();
}

function paint(context, id) {
  const sign = SIGNS[id];
  context.lineWidth = 1.8;
  context.lineJoin = "round";
  context.fillStyle = context.strokeStyle = colours[id];
  if (sign.lines) {
    const path = new Path2D(sign.lines);
    if (id !== "retry" && id !== "other") {
      context.fillStyle = colours.ground;
      context.fill(path);
      context.fillStyle = colours[id];
    }
    context.stroke(path);
  }
  if (sign.fill) context.fill(new Path2D(sign.fill));
  if (sign.cross) {
    context.strokeStyle = colours.on;
    context.lineWidth = 2;
    context.stroke(new Path2D(sign.cross));
  }
}

// A picture of a sign, drawn once for each theme and screen; `pile`: there are several events here.
function sprite(id, pile) {
  const ratio = devicePixelRatio || 1;
  const name = `${id}${pile}${ratio}`;
  if (!sprites.has(name)) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = Math.ceil(SIGN_SIZE * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.translate(SIGN_SIZE / 2, SIGN_SIZE / 2);
    context.globalAlpha = 1;
    if (pile) {
      context.save();
      context.translate(2.5, -2.5);
      context.globalAlpha = 0.45;
      paint(context, id);
      context.restore();
    }
    paint(context, id);
    sprites.set(name, canvas);
  }
  return sprites.get(name);
}

function signIcon(id) {
  const name = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(name, "svg");
  svg.setAttribute("viewBox", "-8 -8 16 16");
  svg.setAttribute("class", "sign");
  svg.setAttribute("aria-hidden", "true");
  for (const [part, drawn] of Object.entries(SIGNS[id])) {
    const path = document.createElementNS(name, "path");
    path.setAttribute("d", drawn);
    path.setAttribute("fill", part === "fill" ? `var(--${id === "other" ? "noop" : id})` : "none");
    if (part !== "fill") {
      path.setAttribute("stroke", part === "cross" ? "var(--on)" : `var(--${id === "other" ? "noop" : id})`);
      path.setAttribute("stroke-width", "1.8");
    }
    svg.append(path);
  }
  return svg;
}
