const { plots, events, steps } = JSON.parse(document.getElementById("data").textContent);
const COLOURS = 6;
const PRINTED_WIDTH = 640; // fits A4 and letter within their margins
const DASHES = ["solid", "dot", "dashdot", "longdash"]; // for runs beyond the colours
let shown = steps[0] < steps[1] ? steps : [steps[0] - 1, steps[1] + 1];
const everything = shown;

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

function compressedTicks({ lines, unit }, range) {
  const most = range ? unit * Math.sinh(Math.max(...range.map(Math.abs))) : largest(lines);
  const [first, last] = [unit, most].map((value) => Math.round(Math.log10(value)));
  const ticks = [[0, "0"]];
  // Ticks at the unit itself would touch the one at zero.
  for (let power = last; power > first || power === last; power -= Math.ceil((last - first) / 4) || 1) {
    const value = compressed(10 ** power, unit);
    ticks.push([value, `10<sup>${power}</sup>`], [-value, `−10<sup>${power}</sup>`]);
  }
  return { tickvals: ticks.map(([value]) => value), ticktext: ticks.map(([, text]) => text) };
}

function logarithmicTicks({ lines }, range) {
  const least = sizes(lines).reduce((least, size) => Math.min(least, size), Infinity);
  const decades = range ? (range[1] - range[0]) / 1.1 : Math.log10(largest(lines) / least);
  return { type: "log", ...(decades > 0.7 && decades < 1.5 && { dtick: "D2", tickformat: "~g" }) }; // Plotly's own crowd
}

function sizes(lines) {
  return lines.flatMap(({ y }) => y).filter((y) => y).map(Math.abs);
}

function largest(lines) {
  return sizes(lines).reduce((most, size) => Math.max(most, size), 0);
}

// A run that diverged would flatten all others: the axis keeps to those that didn't, or else to the bulk of the values,
// unless the rest no more than doubles it. Returns the range and the runs that go beyond it, if there are any.
function focus({ lines, level, unit }, log) {
  if (root.classList.contains("whole") || !lines.some((line) => line.diverged)) return {};
  const at = (y) => (!log ? y : unit ? compressed(y, unit) : Math.log10(y));
  const finite = (values) => values.filter((y) => y !== null).map(at).filter(Number.isFinite);
  const sorted = (some) => finite(some.flatMap(({ y }) => y)).sort((a, b) => a - b);
  const [all, calm] = [sorted(lines), sorted(lines.filter((line) => !line.diverged))];
  if (!all.length) return {};
  const end = all.length - 1;
  const bulk = calm.length ? [calm[0], calm.at(-1)] : [all[Math.floor(0.05 * end)], all[Math.ceil(0.95 * end)]];
  const kept = [...bulk, ...finite([level, log ? null : 0])];
  let [low, high] = [Math.min(...kept), Math.max(...kept)];
  const size = high - low || 1;
  if (low - all[0] <= size) low = Math.min(low, all[0]);
  if (all[end] - high <= size) high = Math.max(high, all[end]);
  const beyond = lines.filter(({ y }) => finite(y).some((value) => value < low || value > high));
  if (!beyond.length) return {};
  return { range: [low - 0.05 * size, high + 0.05 * size], beyond: [...new Set(beyond.map(({ run }) => run))] };
}

function lineTrace(line, unit) {
  const index = line.colour;
  const dash = line.dashed ? "dash" : DASHES[Math.floor((index ?? 0) / COLOURS) % DASHES.length];
  return {
    x: line.x,
    y: unit ? line.y.map((y) => compressed(y, unit)) : line.y,
    customdata: line.y,
    name: shortened(line.name),
    mode: line.x.length > 60 || line.column === "threshold" ? "lines" : "lines+markers",
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

function layout(view, log, range, printing) {
  const narrow = innerWidth < 640 && !printing;
  const axis = axisLook();
  const logarithmic = view.unit ? compressedTicks : logarithmicTicks;
  const scale = log ? logarithmic(view, range) : { type: "linear", rangemode: "tozero" };
  return {
    ...look(),
    autosize: !printing,
    ...(printing && { width: PRINTED_WIDTH, height: 300 }),
    uirevision: "kept", // hidden lines stay hidden
    margin: { l: narrow ? 56 : 84, r: 16, t: 32, b: 48 }, // the same everywhere: steps stand below each other
    xaxis: {
      ...axis,
      title: { text: "step", standoff: 6 },
      range: [...shown],
      tickformat: ",~f",
      unifiedhovertitle: { text: "step %{x:,~f}" },
      uirevision: false,
    },
    yaxis: {
      ...axis,
      ...scale,
      ...(range && { range }),
      title: { text: narrow ? "" : shortened(view.axis) },
      uirevision: `${view.label} ${log}`,
    },
    yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false },
    shapes: levelLine(view, log),
    hovermode: "x unified",
    showlegend: view.lines.length > 1,
  };
}

const figures = plots.map((plot) => {
  const figure = document.getElementById(plot.id);
  const canvas = figure.querySelector(".plot");
  const [choice, switched, note] = [".view", ".log", ".beyond"].map((part) => figure.querySelector(part));

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
    const { range, beyond } = focus(view, log);
    const way = "“Show all” or a double click brings them in";
    note.textContent = beyond ? `Some values of ${beyond.join(", ")} lie beyond this view: ${way}.` : "";
    Plotly.react(canvas, traces, layout(view, log, range, root.classList.contains("printing")), config);
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
  root.classList.add("whole");
  drawAll(); // their ticks may be others
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
addEventListener("repaint", drawAll);
