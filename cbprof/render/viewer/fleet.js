// The page about a fleet: what the heat map says below the pointer.

function idleAt(heat, shares, row, column) {
  const value = shares[row * heat.columns + column];
  return value === heat.unknown ? "no record" : `idle ${(value / 2).toFixed(value % 2 ? 1 : 0)} %`;
}

function timeAt(heat, share) {
  const [unit, size] = heat.length_s < 1 ? ["ms", 1e3] : ["s", 1];
  const digits = Math.max(0, 3 - Math.ceil(Math.log10(heat.length_s * size)));
  return `${(share * heat.length_s * size).toFixed(digits)} ${unit}`;
}

function follow(heat, shares, box, note) {
  box.addEventListener("pointermove", (event) => {
    const area = box.getBoundingClientRect();
    const x = Math.min(0.999999, Math.max(0, (event.clientX - area.left) / area.width));
    const y = Math.min(0.999999, Math.max(0, (event.clientY - area.top) / area.height));
    const row = Math.floor(y * heat.labels.length);
    const text = idleAt(heat, shares, row, Math.floor(x * heat.columns));
    note.textContent = `rank ${heat.labels[row]}, ${timeAt(heat, x)}: ${text}`;
    note.hidden = false;
    note.style.left = x < 0.7 ? `${x * area.width + 14}px` : "auto";
    note.style.right = x < 0.7 ? "auto" : `${(1 - x) * area.width + 14}px`;
    note.style.top = `${Math.min(area.height - 24, y * area.height + 12)}px`;
  });
  box.addEventListener("pointerleave", () => { note.hidden = true; });
}

if (window.matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.theme = "dark";

const data = document.getElementById("heat-data");
window.cbprof = { ready: data ? document.querySelector(".heat img").decode() : null };
if (data) {
  const heat = JSON.parse(data.textContent);
  const shares = Uint8Array.from(atob(heat.half_pct), (character) => character.charCodeAt(0));
  follow(heat, shares, document.querySelector(".heat img"), document.querySelector(".heat output"));
}
