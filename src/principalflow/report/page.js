"use strict";

const { plots, events, steps } = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const COLOURS = 6;
const PRINTED_WIDTH = 640; // fits A4 and letter within their margins
const DASHES = ["solid", "dot", "dashdot", "longdash"]; // for runs beyond the colours
const touched = matchMedia("(hover: none)").matches; // a finger scrolls the page, and the fields above the plots zoom
let shown = steps[0] < steps[1] ? steps : [steps[0] - 1, steps[1] + 1];
const everything = shown;

function colour(name) {
  return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
}

// Plotly reads a little HTML in names; ours are text.
function plain(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function shortened(text) {
  return plain(text.length > 40 ? `${text.slice(0, 39)}…` : text);
}

// Values of both signs over many powers of ten: asinh is straight below the unit and logarithmic beyond, both ways.
function compressed(y, unit) {
  return y === null ? null : Math.asinh(y / unit);
}

function compressedTicks({ lines, unit }) {
  const [first, last] = [unit, largest(lines)].map((value) => Math.round(Math.log10(value)));
  const ticks = [[0, "0"]];
  // Ticks at the unit itself would touch the one at zero.
  for (let power = last; power > first || power === last; power -= Math.ceil((last - first) / 4) || 1) {
    const value = compressed(10 ** power, unit);
    ticks.push([value, `10<sup>${power}</sup>`], [-value, `−10<sup>${power}</sup>`]);
  }
  return { tickvals: ticks.map(([value]) => value), ticktext: ticks.map(([, text]) => text) };
}

function logarithmicTicks({ lines }) {
  const decades = Math.log10(largest(lines) / sizes(lines).reduce((least, size) => Math.min(least, size), Infinity));
  return { type: "log", ...(decades > 0.7 && decades < 1.5 && { dtick: "D2", tickformat: "~g" }) }; // Plotly's own crowd
}

function sizes(lines) {
  return lines.flatMap(({ y }) => y).filter((y) => y).map(Math.abs);
}

function largest(lines) {
  return sizes(lines).reduce((most, size) => Math.max(most, size), 0);
}

function lineTrace(line, unit) {
  const index = line.colour;
  const dash = line.dashed ? "dash" : DASHES[Math.floor((index ?? 0) / COLOURS) % DASHES.length];
  return {
    x: line.x,
    y: unit ? line.y.map((y) => compressed(y, unit)) : line.y,
    customdata: line.y,
    name: shortened(line.name),
    mode: line.x.length > 60 ? "lines" : "lines+markers",
    line: { color: colour(index === null ? "ink" : `line-${index % COLOURS}`), width: 1.6, dash },
    marker: { size: 5 },
    hovertemplate: "%{customdata:.5~g}",
  };
}

// Events are ticks along the top, on an axis of their own that doesn't zoom.
function eventTrace(ticks, run) {
  return {
    x: ticks.x,
    y: ticks.x.map(() => 1),
    text: ticks.text.map(plain),
    yaxis: "y2",
    name: "events",
    showlegend: false,
    mode: "markers",
    cliponaxis: false,
    marker: { symbol: "triangle-down", size: 8, color: colour(events.length > 1 ? `line-${run % COLOURS}` : "faint") },
    hovertemplate: "%{text}<extra></extra>",
  };
}

function levelLine({ level, unit }, log) {
  if (level === null || (log && !unit && level <= 0)) return [];
  const y = log && unit ? compressed(level, unit) : level;
  const line = { color: colour("faint"), width: 1.2, dash: "dash" };
  return [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line }];
}

function layout(view, log, printing) {
  const narrow = innerWidth < 640 && !printing;
  const axis = { gridcolor: colour("rule"), zeroline: false, exponentformat: "power" };
  const scale = !log ? { type: "linear", rangemode: "tozero" } : view.unit ? compressedTicks(view) : logarithmicTicks(view);
  return {
    autosize: !printing,
    ...(printing && { width: PRINTED_WIDTH, height: 300 }),
    uirevision: "kept", // hidden lines stay hidden
    paper_bgcolor: colour("paper"),
    plot_bgcolor: colour("paper"),
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
    margin: { l: narrow ? 56 : 84, r: 16, t: 32, b: 48 }, // the same everywhere: steps stand below each other
    xaxis: {
      ...axis,
      title: { text: "step", standoff: 6 },
      range: [...shown],
      tickformat: ",~f",
      unifiedhovertitle: { text: "step %{x:,~f}" },
      uirevision: false,
    },
    yaxis: { ...axis, ...scale, title: { text: narrow ? "" : plain(view.axis) }, uirevision: `${view.label} ${log}` },
    yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false },
    shapes: levelLine(view, log),
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("paper"), bordercolor: colour("rule"), font: { color: colour("ink") } },
    showlegend: view.lines.length > 1,
    modebar: { orientation: "v", bgcolor: "rgba(0, 0, 0, 0)", color: colour("faint"), activecolor: colour("ink") },
    dragmode: touched ? false : "zoom",
  };
}

const figures = plots.map((plot) => {
  const figure = document.getElementById(plot.id);
  const canvas = figure.querySelector(".plot");
  const [choice, switched] = [figure.querySelector(".view"), figure.querySelector(".log")];

  function draw() {
    const view = plot.views[choice?.value ?? 0];
    const log = switched?.checked ?? false;
    const traces = [...view.lines.map((line) => lineTrace(line, log && view.unit)), ...events.map(eventTrace)];
    const config = {
      responsive: true,
      displaylogo: false,
      displayModeBar: touched ? false : "hover",
      doubleClick: false,
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d"]],
    };
    Plotly.react(canvas, traces, layout(view, log, root.classList.contains("printing")), config);
  }

  draw();
  choice?.addEventListener("change", draw);
  switched?.addEventListener("change", draw);
  canvas.on("plotly_relayout", (change) => {
    if ("xaxis.range[0]" in change) show([change["xaxis.range[0]"], change["xaxis.range[1]"]]);
  });
  canvas.on("plotly_doubleclick", showAll);
  return { canvas, draw };
});

function show(range, change = {}) {
  shown = range;
  for (const { canvas } of figures) Plotly.relayout(canvas, { "xaxis.range": [...range], ...change });
  for (const [id, step] of [["from", range[0]], ["to", range[1]]]) document.getElementById(id).value = Math.round(step);
}

function showAll() {
  show(everything, { "yaxis.autorange": true });
}

function drawAll() {
  for (const { draw } of figures) draw();
}

document.querySelector(".steps").addEventListener("submit", (event) => {
  event.preventDefault();
  const range = ["from", "to"].map((id) => document.getElementById(id).valueAsNumber);
  if (range[0] < range[1]) show(range);
  else showAll();
});
document.getElementById("all").addEventListener("click", showAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

let closed = [];
addEventListener("beforeprint", () => {
  root.classList.add("printing");
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const details of closed) details.open = true;
  drawAll();
});
addEventListener("afterprint", () => {
  root.classList.remove("printing");
  for (const details of closed) details.open = false;
  drawAll();
});
