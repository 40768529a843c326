"use strict";

// Tables: a heading's button sorts, then sorts the other way round, then restores the order that the page came with.
const NEXT = { null: "ascending", ascending: "descending", descending: null };
for (const body of document.querySelectorAll("tbody")) {
  const original = [...body.rows];
  for (const heading of body.parentNode.tHead.rows[0].cells) {
    heading.querySelector("button")?.addEventListener("click", () => {
      const order = NEXT[heading.getAttribute("aria-sort")];
      for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
      if (order) heading.setAttribute("aria-sort", order);
      body.append(...(order ? sorted(original, heading.cellIndex, order === "ascending" ? 1 : -1) : original));
    });
  }
}

function sorted(rows, column, direction) {
  const value = ({ cells: { [column]: cell } }) => "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent;
  const missing = (x) => x === "" || x === "·";
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (missing(a) || missing(b)) return missing(a) - missing(b);  // last, in either direction
    if (typeof a === "number" && typeof b === "number") return direction * (a - b);
    return direction * String(a).localeCompare(String(b), undefined, { numeric: true });
  });
}

// Tables that are wider than their box say so.
const boxes = new ResizeObserver((entries) => {
  for (const { target } of entries) target.classList.toggle("more", target.scrollWidth > target.clientWidth + 1);
});
for (const box of document.querySelectorAll(".scroll:has(table)")) boxes.observe(box);

// Figures: drawn when they come near, in the colours of the page, and again when those change.
const looks = JSON.parse(document.getElementById("looks").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const look = () => looks[dark.matches ? "dark" : "light"];
const drawn = new Set();

// Plotly is unpacked once, for the first figure.
let library = null;
async function unpack() {
  const text = atob(document.getElementById("library").textContent);
  const packed = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) packed[place] = text.charCodeAt(place);  // ten times faster than from()
  const script = document.createElement("script");
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}

async function draw(plot) {
  const { data, layout, frames } = JSON.parse(plot.closest("figure").querySelector("script").textContent);
  plot.textContent = "";
  try {
    await (library ??= unpack());
  } catch {
    plot.textContent = `This browser is too old to draw the figure. ${plot.getAttribute("aria-label")}`;
    return;
  }
  drawn.add(plot);
  // What is shown stays here: nothing is shared with Plotly's cloud.
  const unwanted = ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"];
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: unwanted };
  await Plotly.newPlot(plot, { data, layout: { ...layout, template: look() }, frames, config });
  if (frames) addPlayer(plot, frames);
}

function addPlayer(plot, frames) {
  const player = document.createElement("div");
  player.className = "player";
  player.innerHTML = '<button type="button">Play</button><input type="range" min="0" value="0"><output></output>';
  const [button, slider, output] = player.children;
  slider.max = frames.length - 1;
  slider.setAttribute("aria-label", plot.closest("figure").querySelector("figcaption").textContent);
  let timer = null;
  const show = () => {
    const name = frames[slider.value].name ?? slider.value;
    output.textContent = name;
    slider.setAttribute("aria-valuetext", name);
    const at_once = { mode: "immediate", transition: { duration: 0 }, frame: { duration: 0, redraw: true } };
    return Plotly.animate(plot, [frames[slider.value].name ?? frames[slider.value]], at_once);
  };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (slider.value === slider.max) slider.value = 0;
    button.textContent = "Stop";
    timer = setInterval(() => {
      slider.stepUp();
      show();
      if (slider.value === slider.max) stop();
    }, Math.max(still.matches ? 500 : 60, 8000 / frames.length));
  });
  slider.addEventListener("input", () => { stop(); show(); });
  plot.closest("figure").append(player);
  show();
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    near.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "400px" });
for (const plot of document.querySelectorAll(".plot")) near.observe(plot);
dark.addEventListener("change", () => {
  for (const plot of drawn) Plotly.relayout(plot, { template: look() });
});
