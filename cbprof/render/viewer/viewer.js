// The page as a whole: which stretch of time is in view, and when to draw what.

import { lastAtOrBefore } from "./geometry.js";
import { Inks } from "./paint.js";
import { Panel } from "./panel.js";
import { Run } from "./run.js";
import { Tip } from "./tip.js";

const SHORTEST = 200; // ns that a view holds at least

export class Viewer {
  constructor(page) {
    this.states = page.states;
    this.phases = page.phases;
    this.embedded = page.embedded; // on a page that scrolls
    this.view = { start: 0, end: 1 };
    this.pointer = null; // time under the pointer
    this.markedStep = -1;
    this.arrows = true;
    this.byBlame = false; // gaps by what the GPU waited for, rather than by whether the CPU was active
    this.deep = false; // all rows of a deep stack
    this.aligned = false; // runs moved so that one step starts at one place in all of them
    this.offsets = new Map(); // by run, ns that it is moved by; those that are not there, by nothing
    this.launches = false; // arrows from each launch to what it launched, rather than those of the span under the pointer
    this.run = null; // the one in hand
    this.gap = null; // the one that is shown, as `{run, device, i}`
    this.range = null; // whose statistics are shown, as `{run, start, end}` in the time of that run
    this.found = new Map(); // by run, the ids of the names that were looked for and the span that is shown
    this.pointed = null; // the span under the pointer, as `{run, span}`
    this.tip = new Tip(document.getElementById("tip"));
    this.onDrawn = () => {}; // what is in view has been drawn
    this.onGap = () => {}; // a gap was clicked: run, device, its place among the gaps
    this.onRange = () => {}; // a range was chosen: run, {start, end}
    this.onView = () => {};
  }

  async load(page, parent) {
    this.runs = await Promise.all(page.runs.map((run) => Run.from(run, page)));
    this.length = Math.max(1, ...this.runs.map((run) => run.length));
    this.panels = this.runs.map((run) => new Panel(this, run, parent));
    const [start, end] = page.opening; // in which all runs have something to show
    this.view = this.#within(start, end);
    this.take(this.runs[0]);
    this.redraw();
  }

  /** A view of at least `SHORTEST` that lies within the run. */
  #within(start, end) {
    const length = Math.min(this.length, Math.max(end - start, Math.min(SHORTEST, this.length)));
    const from = Math.max(0, Math.min(this.length - length, (start + end - length) / 2));
    return { start: from, end: from + length };
  }

  /** The stretch in view in the time of a run. */
  viewOf(run) {
    const offset = this.offsets.get(run) ?? 0;
    return { start: this.view.start + offset, end: this.view.end + offset };
  }

  setViewOf(run, start, end) {
    const offset = this.offsets.get(run) ?? 0;
    this.setView(start - offset, end - offset);
  }

  /** The time under the pointer in the time of a run, or null. */
  pointerOf(run) {
    return this.pointer === null ? null : this.pointer + (this.offsets.get(run) ?? 0);
  }

  /** Move the other runs so that `step` starts where it does in the first one; back in place, if not `aligned`. */
  align(step) {
    this.offsets.clear();
    this.alignedStep = step;
    const [first, ...others] = this.runs;
    const at = first.positionOf(step);
    for (const run of this.aligned && at >= 0 ? others : []) {
      const position = run.positionOf(step);
      if (position >= 0) this.offsets.set(run, run.steps.start[position] - first.steps.start[at]);
    }
  }

  /** The number of the step in the middle of the view of the first run, or -1. */
  get stepInView() {
    const { steps, stepOrder } = this.runs[0];
    return stepOrder.length ? steps.step[stepOrder[this.#stepInMiddle]] : -1;
  }

  /** Draw everything: a new size or theme. */
  redraw() {
    this.inks = new Inks();
    for (const panel of this.panels) panel.drawData(this.inks);
    this.drawView();
  }

  drawView() {
    this.pending = false;
    for (const panel of this.panels) panel.drawView(this.inks);
    this.onView();
    this.onDrawn();
  }

  drawOverlays() {
    for (const panel of this.panels) panel.drawOverlay(this.inks);
  }

  /** Show [start, end], in ns. Several changes within one frame draw once. */
  setView(start, end) {
    this.view = this.#within(start, end);
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.pending && this.drawView());
  }

  showAll() {
    this.setView(0, this.length);
  }

  moveBy(ns) {
    this.setView(this.view.start + ns, this.view.end + ns);
  }

  centerOn(t, run = this.runs[0]) {
    this.moveBy(t - (this.offsets.get(run) ?? 0) - this.#center);
  }

  get #center() {
    return (this.view.start + this.view.end) / 2;
  }

  /** Make the view `factor` times as long; `time`, in the time of `run`, stays where it is. */
  zoom(factor, time = null, run = this.runs[0]) {
    const t = time === null ? this.#center : time - (this.offsets.get(run) ?? 0);
    const { start, end } = this.view;
    const length = Math.min(this.length, Math.max(SHORTEST, (end - start) * factor));
    const from = t - ((t - start) / (end - start)) * length;
    this.setView(from, from + length);
  }

  /** Wheel up zooms in at `t` (the middle, if null); sideways moves. On a page that scrolls, zooming takes Ctrl. */
  wheel(event, t, run) {
    if (this.embedded && !event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const sideways = event.shiftKey ? event.deltaX + event.deltaY : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.moveBy(((this.view.end - this.view.start) * sideways * lines) / 1000);
    } else {
      const speed = event.ctrlKey ? 0.01 : 0.002; // a pinch on a touchpad comes as small steps with ctrl
      this.zoom(Math.exp(event.deltaY * lines * speed), t, run);
    }
  }

  /** Show a step from its first span to its last, and mark its spans. False where `run` has no such step. */
  goToStep(step, run = this.runs.find((each) => each.positionOf(step) >= 0)) {
    const at = run?.positionOf(step) ?? -1;
    if (at < 0) return false;
    const [start, end] = [run.steps.start[at], run.steps.end[at]];
    const margin = (end - start) * 0.05;
    this.markedStep = step;
    this.align(step);
    this.setViewOf(run, start - margin, end + margin);
    return true;
  }

  /** The place in `stepOrder` of the step that is under way in the middle of the view. */
  get #stepInMiddle() {
    return Math.max(0, lastAtOrBefore(this.runs[0].stepStarts, this.#center));
  }

  /** Show the step in the middle of the view. */
  showStep() {
    const { steps, stepOrder } = this.runs[0];
    if (stepOrder.length) this.goToStep(steps.step[stepOrder[this.#stepInMiddle]], this.runs[0]);
  }

  /** Move the view so that the next (or previous) step is in its middle. */
  moveToStep(offset) {
    const { stepStarts, length } = this.runs[0];
    if (!stepStarts.length) return;
    const next = Math.max(0, Math.min(stepStarts.length - 1, this.#stepInMiddle + offset));
    this.align(this.runs[0].steps.step[this.runs[0].stepOrder[next]]);
    this.centerOn((stepStarts[next] + (stepStarts[next + 1] ?? length)) / 2);
  }

  /** The pointer is over the lanes of a panel. */
  point(detail, { x, y }, event) {
    const found = detail.hit(x, y);
    this.pointer = found ? found.t - (this.offsets.get(detail.run) ?? 0) : null;
    const panel = this.panels.find((each) => each.detail === detail);
    const lines = found && panel.describe(found);
    this.markedStep = found && found.span >= 0 ? detail.run.spans.step[found.span] : -1;
    this.pointed = found && found.span >= 0 ? { run: detail.run, span: found.span } : null;
    if (lines) this.tip.show(lines, event);
    else this.tip.hide();
    this.drawOverlays();
  }

  leave() {
    this.pointer = null;
    this.pointed = null;
    this.tip.hide();
    this.drawOverlays();
  }

  /** A click on a line that stands for more shows it; one on the name of a lane folds the lane, or as it was at first. */
  fold(lane, isLine) {
    if (isLine) lane.open = lane.open === false && !lane.waits ? undefined : true;
    else lane.open = lane.open && !lane.waits ? undefined : false;
    this.tip.hide();
    this.drawView();
  }

  /** Mark a range of a run while it is drawn. */
  choose(run, a, b) {
    this.range = { run, start: Math.max(0, Math.min(a, b)), end: Math.min(run.length, Math.max(a, b)) };
    this.drawOverlays();
  }

  /** Work with this run: keys and the card are about it. */
  take(run) {
    this.run = run;
    for (const panel of this.panels) panel.markTaken(this.runs.length > 1 && panel.run === run);
    this.onDrawn();
  }

  /** Bring [start, end) of a run into the middle of the view; zoom where it would be under `leastPx` wide, or too wide. */
  bring(run, start, end, leastPx) {
    const view = this.view.end - this.view.start;
    const least = (leastPx * view) / Math.max(...this.panels.map(({ width }) => width));
    const fits = end - start >= least && end - start <= 0.8 * view;
    const length = fits ? view : 3 * (end - start);
    const middle = (start + end) / 2;
    this.setViewOf(run, middle - length / 2, middle + length / 2);
  }
}
