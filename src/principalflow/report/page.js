"use strict";

// What the pages share: the look of their plots, and how they print. "repaint" asks a page to draw its plots again.

const root = document.documentElement;
const touched = matchMedia("(hover: none)").matches; // a finger scrolls the page and doesn't zoom

function colour(name) {
  return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
}

function axisLook() {
  return { gridcolor: colour("rule"), zeroline: false, exponentformat: "power" };
}

function look() {
  return {
    paper_bgcolor: colour("paper"),
    plot_bgcolor: colour("paper"),
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    hoverlabel: { bgcolor: colour("paper"), bordercolor: colour("rule"), font: { color: colour("ink") } },
    modebar: { orientation: "v", bgcolor: "rgba(0, 0, 0, 0)", color: colour("faint"), activecolor: colour("ink") },
    dragmode: touched ? false : "zoom",
  };
}

function repaint() {
  dispatchEvent(new Event("repaint"));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

let closed = [];
addEventListener("beforeprint", () => {
  root.classList.add("printing");
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const details of closed) details.open = true;
  repaint();
});
addEventListener("afterprint", () => {
  root.classList.remove("printing");
  for (const details of closed) details.open = false;
  repaint();
});
