// Authors draw in Okabe and Ito's colours and in black; on a dark page the lighter ones of page.css take their place.
const INKS = {
  "#000000": "ink",
  black: "ink",
  "#0072b2": "line-0",
  "#d55e00": "line-1",
  "#009e73": "line-2",
  "#cc79a7": "line-3",
  "#e69f00": "line-4",
  "#56b4e9": "line-5",
};

function inked(key, value) {
  const ink = typeof value === "string" && key.toLowerCase().endsWith("color") && INKS[value.toLowerCase()];
  return ink ? colour(ink) : value;
}

function template(narrow) {
  const axis = { ...axisLook(), automargin: true };
  const side = { ...axisLook(), showbackground: false, color: colour("faint"), zerolinecolor: colour("rule") };
  const button = { bgcolor: colour("paper"), bordercolor: colour("rule"), font: { color: colour("ink") } };
  return {
    layout: {
      ...look(),
      margin: { l: narrow ? 40 : 64, r: 16, t: 32, b: 48 },
      colorway: [0, 1, 2, 3, 4, 5].map((i) => colour(`line-${i}`)),
      xaxis: axis,
      yaxis: axis,
      scene: { xaxis: side, yaxis: side, zaxis: side, camera: { eye: { x: 1.6, y: 1.6, z: 1.1 } } }, // names of axes fit
      updatemenudefaults: button,
      sliderdefaults: { ...button, activebgcolor: colour("faint") },
    },
  };
}

function drawn(figure) {
  const { data, layout, frames } = JSON.parse(figure.querySelector("script").textContent, inked);
  const themed = { ...layout, template: template(innerWidth < 640), autosize: true, uirevision: "kept" };
  const config = { responsive: true, displaylogo: false, displayModeBar: touched ? false : "hover" };
  Plotly.react(figure.querySelector(".plot"), { data, layout: themed, config, frames });
}

// Many plots take long to draw, and a browser has few 3-D canvases to give: each is drawn when it comes into view.
const coming = new IntersectionObserver(
  (entries) => {
    for (const { target } of entries.filter(({ isIntersecting }) => isIntersecting)) {
      coming.unobserve(target);
      drawn(target);
    }
  },
  { rootMargin: "400px" },
);
for (const figure of document.querySelectorAll(".interactive")) coming.observe(figure);

addEventListener("repaint", () => {
  for (const figure of document.querySelectorAll(".interactive:has(.js-plotly-plot)")) drawn(figure);
});
