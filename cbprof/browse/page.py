"""The pages of ``cbprof view`` that are not those of a trace: the list, a comparison, and why there is nothing."""

from __future__ import annotations

from pathlib import Path

from cbprof.names import plain
from cbprof.render.views.examined import ComparisonView
from cbprof.render.web.page import as_html

STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d8d8d8, #444); --dim: light-dark(#666, #aaa);
  --on: light-dark(#0b6b50, #5cc9a7); --bad: light-dark(#b3400e, #ff9a62); }
body { font: 14px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.5rem; max-width: 76rem; }
h1 { font-size: 1.2rem; overflow-wrap: anywhere; } p { color: var(--dim); }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; } caption { text-align: left; font-weight: 600; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child, th.name, td.name { text-align: left; white-space: normal; }
td.name { overflow-wrap: anywhere; min-width: 12rem; } td.name small { display: block; color: var(--dim); }
td.name small.bad { color: var(--bad); } a { color: var(--on); } .growing::after { content: " being written";
  color: var(--bad); font-size: .8em; } button { font: inherit; padding: .3rem .8rem; }
.compared th { overflow-wrap: anywhere; white-space: normal; }
@media (max-width: 700px) { body { padding: .8rem; font-size: 13px; } .wide { display: none; }
  th, td { padding: .35rem .25rem; white-space: normal; } td.name { min-width: 6rem; } }
"""

SCRIPT = """
"use strict";
const body = document.querySelector("tbody"), ticked = new Set();
const columns = [["idle", ""], ["time", ""], ["tokens_per_s", "wide"], ["steps", "wide"], ["mode", "wide"],
  ["evidence", "wide"]];
const element = (tag, text, className) => {
  const made = document.createElement(tag);
  made.textContent = text ?? "";
  if (className) made.className = className;
  return made;
};
const address = (page, names) => page + "?" + names.map((name) => "f=" + encodeURIComponent(name)).join("&");
const link = (text, page, names) => {
  const made = element("a", text);
  made.href = address(page, names);
  return made;
};
const rowOf = (row) => {
  const tr = document.createElement("tr"), tick = document.createElement("input"), name = element("td", "", "name");
  tick.type = "checkbox";
  tick.checked = ticked.has(row.name);
  tick.ariaLabel = "choose " + row.shown;
  tick.onchange = () => { ticked[tick.checked ? "add" : "delete"](row.name); offer(); };
  const first = document.createElement("td");
  first.append(tick);
  const title = link(row.shown, "plot", [row.name]);
  if (row.growing) title.className = "growing";
  name.append(title);
  if (row.reason) name.append(element("small", row.reason, "bad"));
  else {
    const said = element("small", row.read ? row.sentence + " " : "is being read");
    if (row.read) said.append(link("Report", "report", [row.name]));
    name.append(said);
  }
  tr.append(first, name, ...columns.map(([key, kind]) => element("td", row[key], kind)));
  return tr;
};
const offer = () => {
  for (const button of document.querySelectorAll("button")) button.disabled = ticked.size !== 2;
};
const open = (page) => { location.href = address(page, [...ticked]); };
document.getElementById("compare").onclick = () => open("compare");
document.getElementById("plot").onclick = () => open("plot");
let shown = "";
const refresh = async () => {
  try {
    const answer = await fetch("rows");
    const text = await answer.text();
    if (text !== shown) {
      const rows = JSON.parse(text), there = new Set(rows.map((row) => row.name));
      for (const name of ticked) if (!there.has(name)) ticked.delete(name);
      const focused = document.activeElement?.ariaLabel;
      body.replaceChildren(...rows.map(rowOf));
      if (focused) [...body.querySelectorAll("input")].find((each) => each.ariaLabel === focused)?.focus();
      document.getElementById("state").textContent = rows.length ? "" : "There is no trace in this folder yet.";
      shown = text;
      offer();
    }
  } catch {
    document.getElementById("state").textContent = "cbprof view has ended: start it again, and open what it prints.";
  }
  setTimeout(refresh, 1500);
};
refresh();
"""


def list_page(root: Path) -> str:
    """The traces of the folder; the figures come as they are read."""
    heads = [
        ("GPU idle", ""),
        ("time", ""),
        ("tokens/s", "wide"),
        ("steps", "wide"),
        ("mode", "wide"),
        ("measured by", "wide"),
    ]
    columns = "".join(f'<th class="{kind}">{text}</th>' for text, kind in heads)
    content = f"""<h1>{as_html(plain(str(root)))}</h1>
<p>A name opens the timeline. Tick two to compare them. The list follows the folder.</p>
<p><button id="compare" disabled>Compare</button> <button id="plot" disabled>Both timelines</button></p>
<table><thead><tr><th></th><th class="name">trace</th>{columns}</tr></thead><tbody></tbody></table>
<p id="state" role="status"></p><script>{SCRIPT}</script>"""
    return _page(f"traces in {root.name}", content)


def comparison_page(view: ComparisonView, title: str, query: str) -> str:
    """The tables of a comparison. ``query``: names its two files to the other pages."""
    links = " · ".join(f'<a href="{page}?{as_html(query)}">{text}</a>' for page, text in _BOTH)
    head = f'<h1>{as_html(title)}</h1><p>{links} · <a href=".">all traces</a></p>'
    return _page(title, f'{head}<div class="compared">{view._repr_html_()}</div>')


_BOTH = (("plot", "both timelines"), ("report", "report about both"))


def error_page(text: str) -> str:
    """One line."""
    return _page("cbprof", f"<p>{as_html(plain(text))}</p>")


def _page(title: str, content: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{as_html(plain(title))}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body>{content}</body></html>"
    )
