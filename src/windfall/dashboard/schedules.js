// Schedules: will tonight's run fit? The week around now with what ran, what was skipped and why, and what comes.

import {useRef} from "./vendor/hooks.js"
import {now, useAnswer} from "./api.js"
import {Empty, Job, Panel, Table, text, html, useWidth} from "./parts.js"
import {href, route} from "./route.js"
import {clock, count, percent, quoted, span} from "./words.js"

const DAY = 864e5,
	BACK = 3,
	AHEAD = 4
const look = tick =>
	tick.runSucceeded === true
		? ["ok", "✓", "ran"]
		: tick.runSucceeded === false
			? ["failed", "✗", "its run failed"]
			: tick.jobId
				? ["busy", "▶", tick.runWaits ? "waits" : "runs"]
				: tick.error
					? ["failed", "!", tick.error]
					: ["idle", "–", tick.reason ?? tick.outcome]
const tickWords = tick =>
	[look(tick)[2], tick.reason].filter((text, i, all) => text && all.indexOf(text) === i).join(": ")

function Week({schedule, at}) {
	const ref = useRef(),
		width = useWidth(ref)
	const history = useAnswer("ScheduleHistory", {name: schedule.key, limit: 100}, {every: 15000})
	const midnight = new Date(at).setHours(0, 0, 0, 0),
		from = midnight - BACK * DAY,
		to = midnight + AHEAD * DAY
	const x = ms => ((ms - from) / (to - from)) * width,
		inside = ms => ms > from && ms < to
	const expected = schedule.forecast?.medianMs ?? 0,
		next = history.data?.schedule?.next ?? schedule.next
	const ticks = (history.data?.ticks ?? []).filter(t => inside(t.dueAt))
	return html`<div ref=${ref} class=week><svg width=${width} height="38" role="img" aria-label="${count(ticks.length, "tick")} in the last ${BACK} days; next ${next[0] ? clock(next[0].at, false) : "never"}">
		${Array.from({length: BACK + AHEAD}, (_, i) => html`<g class=tick><line x1=${x(from + i * DAY)} x2=${x(from + i * DAY)} y1="0" y2="38" /><text class=day x=${x(from + i * DAY) + 4} y="10">${new Date(from + i * DAY).toLocaleDateString("en", {weekday: "short", day: "numeric"})}</text></g>`)}
		${ticks.map(t => {
			const [kind, sign] = look(t),
				end = t.runEndedAt ?? (t.runStartedAt ? at : t.dueAt)
			return html`<g class=due><title>${t.local}: ${tickWords(t)}</title><rect class=${kind} x=${x(t.runStartedAt ?? t.dueAt)} y="16" width=${Math.max(3, x(end) - x(t.runStartedAt ?? t.dueAt))} height="11" /><text x=${x(t.dueAt)} y="37">${sign}</text></g>`
		})}
		${next.filter(d => inside(d.at)).map(d => html`<g class=due><title>${d.local}${d.skipped ? ": is skipped, " + d.note : expected ? `: takes about ${span(expected)}` : ""}</title><rect class=${d.skipped ? "idle" : "coming"} x=${x(d.at)} y="16" width=${Math.max(3, x(d.at + expected) - x(d.at))} height="11" /></g>`)}
		<line class=now x1=${x(at)} x2=${x(at)} y1="0" y2="38" /></svg></div>`
}

function Forecast({forecast: f}) {
	if (!f?.verdict || f.verdict === "unknown") return html`<small>no run yet to judge by</small>`
	const good = f.verdict === "fits"
	return html`<b>${good ? "✓" : "!"}</b> ${String(f.verdict).replaceAll("_", " ")}${f.medianMs != null ? html` <small>${span(f.medianMs)}, nine of ten within ${span(f.p90Ms)}${f.roomMs != null ? `, room for ${span(f.roomMs)}` : ""}${f.chance != null ? `, ${percent(f.chance)} in time` : ""}</small>` : ""}`
}

function History({name}) {
	const answer = useAnswer("ScheduleHistory", {name, limit: 100}, {every: 10000}),
		s = answer.data?.schedule
	return html`<${Panel} title="History of ${name.slice(0, 80)}" of=${answer} command="windfall schedules ${quoted(name)}">${s && html`<p>${s.when}, ${s.timezone}. Overlap: ${s.overlap}; missed: ${s.catchUp}.</p>`}
		${
			answer.data?.ticks.length
				? html`<${Table} label="ticks" rows=${answer.data.ticks} columns=${[
						["due", t => t.local],
						["outcome", t => html`<span class=state>${look(t)[1]} ${look(t)[2]}</span>`],
						["reason", t => text(t.reason ?? t.error ?? "", 200), "grow"],
						["run", t => (t.jobId ? html`<${Job} id=${t.jobId} name=${t.jobId.slice(0, 8)} />` : "-")],
						["took", t => (t.runStartedAt && t.runEndedAt ? span(t.runEndedAt - t.runStartedAt) : "-"), "n"],
					]} />`
				: html`<p class=quiet>It was not due yet.</p>`
		}<//>`
}

export function Schedules() {
	const answer = useAnswer("Schedules", {limit: 50}, {every: 10000}),
		list = answer.data?.schedules ?? [],
		at = now(),
		chosen = route.value.id
	return html`<h1>${answer.data ? count(list.length + answer.data.leftOut, "schedule") : "Schedules"}</h1><${Panel} title="The week" of=${answer} command="windfall schedules">
		${
			list.length
				? html`<ul class=schedules>${list.map(s => html`<li key=${s.key} data-row><div><a href=${href("schedules", s.key)} aria-current=${chosen === s.key ? "true" : null}><b>${text(s.group === "default" ? s.name : s.key, 60)}</b></a> <span class=quiet>${s.when}${s.state === "DISABLED" ? " · paused" : s.next[0] ? ` · next ${clock(s.next[0].at, false)}` : ""}</span></div><${Week} schedule=${s} at=${at} /><div><${Forecast} forecast=${s.forecast} /></div></li>`)}</ul>
			${answer.data.leftOut > 0 && html`<p class=quiet>left out: ${answer.data.leftOut}</p>`}<ul class=legend><li><i class=ok />✓ ran</li><li><i class=failed />✗ failed</li><li><i class=busy />▶ runs</li><li><i class=idle />– skipped</li><li><i class=coming />comes, as long as usual</li></ul>`
				: html`<${Empty} command="windfall schedule create nightly --cron '0 2 * * *' -- python train.py">No schedule is there yet. This runs a job every night at two:<//>`
		}<//>${chosen && html`<${History} name=${chosen} key=${chosen} />`}`
}
